#include "cpu/rope.h"

#include <cmath>

#include "cpu/instantiate.h"
#include "cpu/parallel.h"
#include "cpu/scalar.h"
#include "cpu/vector_math.h"

namespace wgrad::cpu {
namespace {

/// One head. `sign` is 1 for the rotation, -1 for the transposed one; `step` is the distance
/// between consecutive pairs and `partner` that between the two elements of a pair.
template <class T>
WGRAD_INLINE void rotate_head(const T* x, T* y, const T* cos_sin, int64_t pairs, int64_t step,
                              int64_t partner, T sign) {
#pragma omp simd
  for (int64_t i = 0; i < pairs; ++i) {
    const T cos = cos_sin[2 * i];
    const T sin = sign * cos_sin[2 * i + 1];
    const T x0 = x[i * step];
    const T x1 = x[i * step + partner];
    y[i * step] = x0 * cos - x1 * sin;
    y[i * step + partner] = x1 * cos + x0 * sin;
  }
}

/// All heads of one token.
template <class T>
WGRAD_INLINE void rotate_token(const T* x, T* y, const T* cos_sin, int64_t heads, int64_t head_dim,
                               int64_t rotary_dim, RopePairing pairing, T sign) {
  const int64_t pairs = rotary_dim / 2;
  for (int64_t h = 0; h < heads; ++h) {
    const T* head = x + h * head_dim;
    T* out = y + h * head_dim;
    if (pairing == RopePairing::kHalfSplit) {
      rotate_head(head, out, cos_sin, pairs, 1, pairs, sign);
    } else {
      rotate_head(head, out, cos_sin, pairs, 2, 1, sign);
    }
    if (head != out) std::copy(head + rotary_dim, head + head_dim, out + rotary_dim);
  }
}

WGRAD_MULTIVERSION
void rotate_token_f32(const float* x, float* y, const float* cos_sin, int64_t heads,
                      int64_t head_dim, int64_t rotary_dim, RopePairing pairing, float sign) {
  rotate_token(x, y, cos_sin, heads, head_dim, rotary_dim, pairing, sign);
}

}  // namespace

std::vector<double> rope_inv_freq(double theta, int64_t rotary_dim) {
  std::vector<double> inv_freq(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    inv_freq[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
  }
  return inv_freq;
}

template <class T>
std::vector<T> rope_table(const std::vector<double>& inv_freq, int64_t max_position,
                          double factor) {
  const int64_t pairs = static_cast<int64_t>(inv_freq.size());
  std::vector<T> table(static_cast<size_t>(max_position * pairs * 2));
  parallel_for(max_position, 64 * pairs, [&](int64_t p) {
    T* row = table.data() + p * pairs * 2;
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(p) * inv_freq[static_cast<size_t>(i)];
      row[2 * i] = constant<T>(std::cos(angle) * factor);
      row[2 * i + 1] = constant<T>(std::sin(angle) * factor);
    }
  });
  return table;
}

template <class T>
void rope_apply(const T* x, T* y, const uint32_t* positions, const T* cos_sin, int64_t tokens,
                int64_t heads, int64_t head_dim, int64_t rotary_dim, RopePairing pairing,
                bool inverse) {
  const T sign = inverse ? T(-1) : T(1);
  parallel_for(tokens, heads * head_dim, [&](int64_t t) {
    const T* angles = cos_sin + static_cast<int64_t>(positions[t]) * (rotary_dim / 2) * 2;
    const int64_t first = t * heads * head_dim;
    if constexpr (std::is_same_v<T, float>) {
      rotate_token_f32(x + first, y + first, angles, heads, head_dim, rotary_dim, pairing, sign);
    } else {
      rotate_token(x + first, y + first, angles, heads, head_dim, rotary_dim, pairing, sign);
    }
  });
}

#define WGRAD_INSTANTIATE(T)                                                                      \
  template std::vector<T> rope_table<T>(const std::vector<double>&, int64_t, double);             \
  template void rope_apply<T>(const T*, T*, const uint32_t*, const T*, int64_t, int64_t, int64_t, \
                              int64_t, RopePairing, bool);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
