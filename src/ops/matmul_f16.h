#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/f16_operand.h"
#include "ops/matmul.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// Whether the device multiplies f16 matrices: subgroup matrices with subgroups of exactly 32.
bool has_f16_product(const Context& ctx);

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
