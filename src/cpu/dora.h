#pragma once

#include <cstdint>

namespace wgrad::cpu {

/// norm[r] = |w[r]|, the Euclidean norm; factor[r] = magnitude[r] / norm[r], 0 where the norm is 0.
template <class T>
void dora_factors(const T* w,          // [rows, n]
                  const T* magnitude,  // [rows]
                  T* norm,             // [rows], set
                  T* factor,           // [rows], set
                  int64_t rows, int64_t n);

/// y[r,j] (+)= (factor[j] + shift) u[r,j] (+ bias[j]).
template <class T>
void dora_forward(const T* u,       // [rows, n]
                  const T* factor,  // [n]
                  const T* bias,    // [n] or null
                  T* y,             // [rows, n], set, or added to where `accumulate`
                  T shift, int64_t rows, int64_t n, bool accumulate);

/// The gradients by u and by the magnitude, with the norm held constant:
///   grad_u[r,j] = factor[j] grad_y[r,j]
///   grad_magnitude[j] += (sum over r of grad_y[r,j] u[r,j]) / norm[j], nothing where the norm is 0
template <class T>
void dora_backward(const T* grad_y,    // [rows, n]
                   const T* factor,    // [n]
                   const T* norm,      // [n]
                   T* u,               // [rows, n], becomes the terms of the sums
                   T* grad_u,          // [rows, n], set
                   T* grad_magnitude,  // [n], accumulates
                   int64_t rows, int64_t n);

}  // namespace wgrad::cpu
