#pragma once

#include <span>

#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::ops {

enum class RopePairing : uint8_t {
  kInterleaved,  ///< pairs (2i, 2i+1)
  kHalfSplit,    ///< pairs (i, i + rotary_dim/2): Hugging Face checkpoints
};

/// Rotates in place: x f32 [T, heads * head_dim], positions u32 [T], table f32
/// [max_position, rotary_dim/2, 2] of (cos, sin) computed on the host in double. The first
/// rotary_dim elements of each head turn, the rest stay. `inverse` is the backward pass.
/// A position past the table is an error that the caller prevents (positions are known on the
/// host).
void rope_apply(Context& ctx, const Tensor& x, const Tensor& positions, const Tensor& table,
                int64_t head_dim, int64_t rotary_dim, RopePairing pairing, bool inverse);

}  // namespace wgrad::ops
