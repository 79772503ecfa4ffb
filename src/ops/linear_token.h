#pragma once

#include <span>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matvec.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// Generation computes one token at a time, and is bound by how fast weights are read and by the
/// number of dispatches. These are linear_forward and its neighbours for one row on a GPU, several
/// in one dispatch.

/// A linear layer and where its result goes. All y of a group lie in one memory.
struct TokenLinear {
  const Weight* weight = nullptr;
  Tensor bias;  ///< of all layers of a group or of none
  Tensor y;     ///< [1, out]
};

/// Whether token_linears takes these layers: on a GPU, up to three that are stored alike, not NF4,
/// each within a binding.
bool fits_token_linears(const Context& ctx, std::span<const TokenLinear> layers, bool norm);

/// y = norm(x) W^T + bias (+ y) for each layer; x [1, in].
void token_linears(Context& ctx, const Tensor& x, const MatvecNorm& norm,
                   std::span<const TokenLinear> layers, bool accumulate = false);
/// y = activation(norm(x) gate^T) (norm(x) up^T), where y is that of `gate`.
void token_gated(Context& ctx, Activation activation, const Tensor& x, const MatvecNorm& norm,
                 const TokenLinear& gate, const TokenLinear& up);

/// y += scale xa B^T of several adapters' B f32 [out, r], each with its own xa [1, r].
struct TokenExpand {
  Tensor xa, b, y;
};
void token_expand(Context& ctx, std::span<const TokenExpand> terms, float scale);

}  // namespace wgrad::ops
