#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/lora_factors.h"
#include "ops/matmul_f16.h"
#include "ops/tensor.h"

/// A low-rank adapter's products on f16 subgroup matrices: they read the packed operands of the
/// layer they stand beside, and what they add to its results is added by the layer's own product.
namespace wgrad::ops {

/// Whether the context multiplies factors of this rank here.
bool lora_uses_matrices(const Context& ctx, int64_t rank);
/// Whether a layer of this weight over so many tokens can take its adapter's term.
bool lora_fits(const Context& ctx, const LoraHalves& halves, const Weight& weight, int64_t tokens);

/// Sets xa [T, rank] = x A^T. The term, in linear_forward, adds scale xa B^T to y.
LowRankTerm lora_project_forward(Context& ctx, LinearInput& x, const LoraHalves& halves,
                                 float scale, const Tensor& xa);
/// Sets grad_xa [T, rank] = scale grad_y B. The term, in linear_backward_input, adds grad_xa A to
/// grad_x.
LowRankTerm lora_project_backward(Context& ctx, LinearInput& grad_y, const LoraHalves& halves,
                                  float scale, const Tensor& grad_xa);
/// grad_b += scale * grad_y^T xa; grad_a += grad_xa^T x.
void lora_add_gradients(Context& ctx, LinearInput& grad_y, const Tensor& xa, float scale,
                        LinearInput& x, const Tensor& grad_xa, const Tensor& grad_b,
                        const Tensor& grad_a);

}  // namespace wgrad::ops
