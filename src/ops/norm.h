#pragma once

#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// RMSNorm (Zhang and Sennrich 2019): y = (weight_offset + weight) * x * inv_rms, inv_rms =
/// 1/sqrt(mean(x^2) + eps). x, y f32 [rows, n]; weight f32 [n]; inv_rms f32 [rows] is saved for the
/// backward pass.
void rms_norm_forward(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& y,
                      const Tensor& inv_rms, float eps, float weight_offset = 0.0f);
/// grad_x is set, or added to when `accumulate`; grad_weight [n] (may be empty) is added to.
void rms_norm_backward(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& inv_rms,
                       const Tensor& grad_y, const Tensor& grad_x, bool accumulate,
                       const Tensor& grad_weight, float weight_offset = 0.0f);

}  // namespace wgrad::ops
