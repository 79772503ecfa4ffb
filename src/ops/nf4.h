#pragma once

#include "cpu/nf4.h"
#include "ops/context.h"
#include "ops/linear.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// x, f32 [n], as NF4: packed u8 [ceil(n / 8) * 4] (beyond the n codes: zero) and absmax f32
/// [ceil(n / 64)]. A part of a weight is whole blocks of 64 unless it is the last. Equal to
/// cpu::quantise_nf4 where absmax is zero or within 2^-126 and 2^126.
void nf4_quantise(Context& ctx, const Tensor& x, const Tensor& packed, const Tensor& absmax);

/// A kNF4 weight of a CPU context, for the functions of cpu/nf4.h.
cpu::Nf4View nf4_view(const Weight& weight);

/// Quantises rows as they come: NF4 codes packed as bitsandbytes does, absmax double-quantised.
Weight load_nf4_weight(Context& ctx, std::string name, int64_t out_features, int64_t in_features,
                       const RowReader& read_rows);

/// Rows [row_begin, row_begin + out.dim(0)) of a kNF4 weight as f32 [rows, in_features]; within
/// 1e-6 of bitsandbytes' values. Equal to cpu::dequantise_nf4.
void nf4_dequantise_rows(Context& ctx, const Weight& weight, int64_t row_begin, const Tensor& out);
/// The whole weight: out f32 [out_features, in_features].
void nf4_dequantise(Context& ctx, const Weight& weight, const Tensor& out);
/// The rows as f16 blocks (ops/f16_blocks.h) of value / weight.scale; in_features is a multiple of
/// 8 and `row_begin` of 32. Sets f16_blocks_size(rows, in_features) halves.
void nf4_dequantise_blocks(Context& ctx, const Weight& weight, int64_t row_begin, int64_t rows,
                           const Tensor& blocks);

/// Makes `part` rows [begin, end) of a kNF4 weight, on its codes. False where a part cannot begin
/// there: in the middle of 256 blocks of 64.
bool nf4_rows(Context& ctx, const Weight& weight, int64_t begin, int64_t end, Weight& part);

/// The packed codes of rows from `row_begin` as a kernel reads them: `tensor` starts at a multiple
/// of 256 bytes, its first element is number `origin` of the weight (a multiple of 8).
struct Nf4Window {
  Tensor tensor;
  int64_t origin = 0;
};
Nf4Window nf4_window(const Weight& weight, int64_t row_begin, int64_t rows);

}  // namespace wgrad::ops
