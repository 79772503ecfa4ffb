#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/matmul.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// A product in f32 arithmetic on the GPU. Matrices are given by their first element's tensor and
/// the distance between rows; `a_column` and `c_column` begin within a row.
struct Product {
  MatmulOp op = MatmulOp::kNT;
  int64_t m = 0, n = 0, k = 0;
  Tensor a, b, c;  ///< b may be f16 (multiples of 4 wide)
  int64_t lda = 0, ldb = 0, ldc = 0;
  int64_t a_column = 0, c_column = 0;
  Tensor bias;  ///< [n] or empty
  float alpha = 1.0f;
  bool accumulate = false;
};

/// Runs the product in parts that fit the device's binding limit.
void product_f32(Context& ctx, const Product& product);

/// y[m, n] = alpha x[m, k] W[n, k]^T for few rows, reading the weight once. False where the shape
/// does not fit (m > 8, k not a multiple of 8, ...) and nothing was done.
bool matvec(Context& ctx, const Product& product);

}  // namespace wgrad::ops
