#pragma once

#include <string_view>

#include "cpu/activation.h"
#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::ops {

using cpu::Activation;
using cpu::kActivations;

/// All tensors f32 of equal size. Outputs are set.
void silu_forward(Context& ctx, const Tensor& x, const Tensor& y);
void silu_backward(Context& ctx, const Tensor& x, const Tensor& grad_y, const Tensor& grad_x);
/// y = activation(gate) * up (Shazeer 2020).
void gated_forward(Context& ctx, Activation activation, const Tensor& gate, const Tensor& up,
                   const Tensor& y);
void gated_backward(Context& ctx, Activation activation, const Tensor& gate, const Tensor& up,
                    const Tensor& grad_y, const Tensor& grad_gate, const Tensor& grad_up);
/// WGSL of the activation and its derivative, behind vector_prelude().
std::string_view activation_text(Activation activation);
/// y += x.
void add(Context& ctx, const Tensor& x, const Tensor& y);
void add_scaled(Context& ctx, const Tensor& x, float factor, const Tensor& y);  ///< y += factor * x
void scaled_copy(Context& ctx, const Tensor& x, float factor, const Tensor& y);  ///< y = factor * x
void scale(Context& ctx, const Tensor& x, float factor);                         ///< x *= factor
void fill_zero(Context& ctx, const Tensor& x);
void copy(Context& ctx, const Tensor& from, const Tensor& to);

/// softmax over each row of [rows, n].
void softmax_forward(Context& ctx, const Tensor& x, const Tensor& y);
void softmax_backward(Context& ctx, const Tensor& y, const Tensor& grad_y, const Tensor& grad_x);

/// Counter-based: the mask is a function of (seed, stream, element index) alone (Philox 4x32-10,
/// Salmon et al. 2011; exact definition in cpu/dropout.h), so recomputation gives the same mask.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t stream = 0;  ///< a number of its own for each place and step
};
/// y = x * mask / (1 - p); its own backward (apply to the gradient). y may be x.
/// `accumulate`: y += ...
void dropout(Context& ctx, const Tensor& x, const Tensor& y, float p, DropoutKey key,
             bool accumulate = false);

}  // namespace wgrad::ops
