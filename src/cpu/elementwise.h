#pragma once

#include <cstdint>

namespace wgrad::cpu {

/// y += x.
template <class T>
void add(T* y /* accumulates */, const T* x, int64_t n);

/// out = a + b; out may be either.
template <class T>
void add_to(const T* a, const T* b, T* out /* set */, int64_t n);

/// y += alpha x.
template <class T>
void add_scaled(T* y /* accumulates */, const T* x, T alpha, int64_t n);

/// y = factor x.
template <class T>
void scaled_copy(T* y /* set */, const T* x, T factor, int64_t n);

/// y *= factor.
template <class T>
void scale(T* y, T factor, int64_t n);

/// y = value.
template <class T>
void fill(T* y /* set */, T value, int64_t n);

/// max |x[i]|, 0 for n = 0; NaN where there is one.
float largest_magnitude(const float* x, int64_t n);

}  // namespace wgrad::cpu
