#pragma once

#include <cstdint>
#include <vector>

namespace wgrad::cpu {

/// Which elements of a head are rotated together.
enum class RopePairing {
  kInterleaved,  ///< (2i, 2i + 1)
  kHalfSplit,    ///< (i, i + rotary_dim / 2), as Hugging Face checkpoints have it
};

/// theta^(-2i / rotary_dim) for i in [0, rotary_dim / 2).
std::vector<double> rope_inv_freq(double theta, int64_t rotary_dim);

/// cos and sin of p inv_freq[i] times `factor`, laid out [max_position][rotary_dim / 2][2]. Angles
/// and functions are computed in double and rounded once, so they are exact to T at any position.
template <class T>
std::vector<T> rope_table(const std::vector<double>& inv_freq, int64_t max_position,
                          double factor = 1.0);

/// Rotates each pair (x0, x1) of the first `rotary_dim` elements of a head by the angle of its
/// token's position: y0 = x0 cos - x1 sin, y1 = x1 cos + x0 sin; the rest is copied. `inverse`
/// applies the transposed rotation, which is the backward pass: grad_x = rope(grad_y, inverse).
template <class T>
void rope_apply(const T* x,                 // [tokens, heads, head_dim]
                T* y,                       // [tokens, heads, head_dim], set; may be x
                const uint32_t* positions,  // [tokens], each below the table's max_position
                const T* cos_sin,           // [max_position][rotary_dim / 2][2]
                int64_t tokens, int64_t heads, int64_t head_dim, int64_t rotary_dim,
                RopePairing pairing, bool inverse);

}  // namespace wgrad::cpu
