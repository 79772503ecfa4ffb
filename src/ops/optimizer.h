#pragma once

#include <span>

#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// What the optimizer step reads from the device, so that no value crosses to the host between the
/// backward pass and the step: f32 [4] = {gradient norm before clipping, factor on the gradient
/// (clipping; 0 where not finite), 1 where every gradient and the loss is finite else 0, the loss}.
/// `loss` f32 [1] is the step's summed loss. `grads`: the flat gradients. Non-finite is checked on
/// bits. max_norm 0: no clipping; else the factor is min(1, max_norm / (norm + 1e-6)). Where not
/// finite the norm is the sentinel 3.4e38.
void gradient_norm(Context& ctx, std::span<const Tensor> grads, const Tensor& loss, float max_norm,
                   const Tensor& state);

struct AdamWStep {
  /// In double, so that 1 - beta is not 1 - (beta rounded to f32).
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double bias_correction1 = 1, bias_correction2 = 1;  ///< 1 - beta^t
};
/// AdamW (Loshchilov and Hutter 2019) over flat f32 tensors of one size; g is first multiplied by
/// state[1]; does nothing where state[2] is 0 (the step is skipped).
///   m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr (m/c1 / (sqrt(v/c2) + eps) + wd p)
void adamw_step(Context& ctx, const AdamWStep& step, const Tensor& state, const Tensor& parameters,
                const Tensor& gradients, const Tensor& m, const Tensor& v);

}  // namespace wgrad::ops
