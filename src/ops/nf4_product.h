#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matmul.h"
#include "ops/tensor.h"

/// Products with an NF4 weight that is decoded on its way into them: few rows, in a context that
/// computes in f16. The codes' values are rounded to f16.
namespace wgrad::ops {

/// y[m, out] (+)= x W^T + bias (kNT), or y[m, in] (+)= x W (kNN).
struct Nf4Product {
  MatmulOp op;
  const Weight& weight;
  const Tensor& x;  ///< empty where only its packed form exists
  const Tensor& bias;
  const Tensor& y;
  bool accumulate;
  LinearInput* shared;  ///< x, where others take it too, or null

  int64_t m() const { return y.dim(0); }
  int64_t n() const { return y.dim(1); }
  int64_t k() const { return weight.out_features + weight.in_features - n(); }
};

/// Whether one to four rows of x run here, in f32.
bool nf4_takes_vectors(const Context& ctx, const Nf4Product& product);
void nf4_vector_product(Context& ctx, const Nf4Product& product);

/// Whether up to 64 rows of x run here, in f16 on subgroup matrices.
bool nf4_takes_matrices(const Context& ctx, const Nf4Product& product);
void nf4_matrix_product(Context& ctx, const Nf4Product& product);

}  // namespace wgrad::ops
