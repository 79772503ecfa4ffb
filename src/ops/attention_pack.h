#pragma once

#include <cstdint>

#include "ops/attention_matrix_source.h"
#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// f16 operands of attention's matrix kernels; see kernels/attention_pack.wgsl.
struct AttentionOperands {
  Tensor q;        ///< f16 [queries * heads, packed head_dim]
  Tensor kv;       ///< f16: k and after it v, each [keys * kv_heads, packed head_dim]
  Tensor factors;  ///< f32 [4, 2]: the power of q, k, v, grad_out and its inverse
};

/// Packs q, k and v, f32 of any shape of whole heads.
AttentionOperands attention_pack(Context& ctx, int64_t head_dim, const Tensor& q, const Tensor& k,
                                 const Tensor& v);
/// Packs grad_out as q is packed, with its power in `factors`.
Tensor attention_pack_grad(Context& ctx, int64_t head_dim, const Tensor& grad_out,
                           const Tensor& factors);

}  // namespace wgrad::ops
