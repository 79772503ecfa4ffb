#pragma once

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// Weight-decomposed low-rank adaptation (DoRA, Liu et al. 2024) as PEFT computes it: the layer's
/// weight W + scale B A is scaled row by row to the length `magnitude`; the lengths that it has
/// itself are held constant in the backward pass.
struct DoraFactors {
  Tensor norm;    ///< f32 [out]: of the rows of W + scale B A
  Tensor factor;  ///< f32 [out]: magnitude / norm, 0 where the norm is 0
};

/// Sets both, some rows of the weight at a time. A [rank, in], B [out, rank], magnitude [out].
void dora_factors(Context& ctx, const Weight& weight, const Tensor& a, const Tensor& b, float scale,
                  const Tensor& magnitude, const DoraFactors& factors);

/// y = (factor + shift) u + bias of each column (+ y when accumulate); u, y f32 [T, out]; bias f32
/// [out] or empty.
void dora_forward(Context& ctx, const Tensor& u, const Tensor& factor, const Tensor& bias,
                  float shift, const Tensor& y, bool accumulate);

/// grad_u = factor grad_y; grad_magnitude += column sums of grad_y u / norm. `u` is overwritten.
void dora_backward(Context& ctx, const Tensor& grad_y, const DoraFactors& factors, const Tensor& u,
                   const Tensor& grad_u, const Tensor& grad_magnitude);

/// dora_factors for rows that lie in memory: w f32 [rows, n].
void dora_row_factors(Context& ctx, const Tensor& w, const Tensor& magnitude,
                      const DoraFactors& factors);

}  // namespace wgrad::ops
