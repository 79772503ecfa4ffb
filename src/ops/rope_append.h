#pragma once

#include "ops/context.h"
#include "ops/matvec.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// One token's heads on their way into attention, on a GPU, in one dispatch.
struct RopeAppend {
  Tensor q, k, v;       ///< f32 [1, heads * head_dim], [1, kv_heads * head_dim]; in one memory
  Tensor turned;        ///< f32, as q, in memory of its own
  Tensor position;      ///< u32 [1]
  Tensor table;         ///< as in ops/rope.h; empty where nothing turns
  Tensor keys, values;  ///< f32 [capacity, kv_heads * head_dim], the cache
  int64_t row = 0;      ///< of the cache: the token's
  /// Before the rotation, both or none: of each head or, with weights as long as q and k, of all
  /// heads together.
  MatvecNorm q_norm, k_norm;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;
};

/// Sets `turned` to q, normalised and turned, the token's row of `keys` to k, normalised and
/// turned, and that of `values` to v.
void rope_append(Context& ctx, const RopeAppend& call);

}  // namespace wgrad::ops
