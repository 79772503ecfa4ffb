#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/f16_operand.h"
#include "ops/matmul.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// Whether the device multiplies f16 matrices: subgroup matrices with subgroups of exactly 32.
bool has_f16_product(const Context& ctx);

/// What a product adds to its result in the same pass: small [m, rank] times factor^T, of
/// lora_matrix.h.
struct LowRankTerm {
  Tensor small;   ///< f16 [m padded to 32, rank padded to 16]
  Tensor scales;  ///< f32 [m]: the factor that a row of the term is multiplied by
  Tensor factor;  ///< f16: kNT [n padded to 32, padded rank], kNN [padded rank, n padded to 32]
  int64_t padded_rank = 0;
  int64_t rows = 0, columns = 0;  ///< of small and factor, padded
  int64_t row = 0, column = 0;    ///< that belong to the first of the result

  explicit operator bool() const { return padded_rank > 0; }
};

/// A product of packed operands. A must fit one binding; B and C are taken in parts where they do
/// not. kTN needs operands with one factor for all.
struct F16Product {
  MatmulOp op = MatmulOp::kNT;
  int64_t m = 0, n = 0, k = 0;
  F16Operand a, b;
  Tensor c;
  int64_t ldc = 0, c_column = 0;
  int64_t a_column = 0;  ///< where the reduction begins in A's rows, a multiple of 32 (not kTN)
  Tensor bias;           ///< [n] or empty
  float alpha = 1.0f;
  bool accumulate = false;
  LowRankTerm low_rank;  ///< or empty; not where both B has scales and there is a bias
};
void product_f16(Context& ctx, const F16Product& product);

/// Rows of an operand with `columns` columns that are packed at once: what one binding holds, in
/// whole tiles.
int64_t f16_rows_at_once(const Context& ctx, int64_t columns);

/// The right-hand side of kNT or kNN in f16 blocks.
F16Operand pack_f16_right(Context& ctx, MatmulOp op, const Tensor& b);

/// matmul_f16 where has_f16_product(); sizes are checked by the caller.
void matmul_f16_gpu(Context& ctx, MatmulOp op, int64_t m, int64_t n, int64_t k, const Tensor& a,
                    const Tensor& b, const Tensor& c, const MatmulOptions& options);

}  // namespace wgrad::ops
