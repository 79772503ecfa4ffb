#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "cpu/scalar.h"

/// Float functions that the compiler turns into vector code inside a loop.
namespace wgrad::cpu {

/// Compiles a function several times, for x86-64 with AVX-512, with AVX2 and without; the loader
/// picks one. Such a function must not open an OpenMP region itself. Sanitizers cannot run
/// before the loader's choice, so their builds have the plain version only.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WGRAD_MULTIVERSION \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WGRAD_MULTIVERSION
#endif

#define WGRAD_INLINE inline __attribute__((always_inline))

/// exp(x) for x <= 88; exactly 0 below -87.3. Relative error below 2 epsilon: the series to degree
/// 7 on [-ln2/2, ln2/2], scaled by a power of two that is built in the exponent bits.
WGRAD_INLINE float exp_f32(float x) {
  constexpr float kLowest = -87.3f;
  constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = x > kLowest ? x : kLowest;
  const float shifted = clamped * 1.44269504088896341f + kRoundingShift;
  const float n = shifted - kRoundingShift;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9841270e-4f;
  p = p * r + 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666668e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) - 0x4B400000u) << 23;
  const float value = std::bit_cast<float>(std::bit_cast<uint32_t>(p) + exponent);
  return x > kLowest ? value : 0.0f;
}

/// exp for every scalar: the vectorisable one for float, for arguments <= 88.
template <class T>
WGRAD_INLINE T exp_of(const T& x) {
  if constexpr (std::is_same_v<T, float>) {
    return exp_f32(x);
  } else {
    return std::exp(x);
  }
}

/// The logistic function and its complement, each to full relative accuracy, from an exponential
/// whose argument is never positive.
template <class T>
struct Logistic {
  T value;       // s(x)
  T complement;  // 1 - s(x)
};

template <class T>
WGRAD_INLINE Logistic<T> logistic(const T& x) {
  const bool positive = real_part(x) >= Real<T>(0);
  const T e = exp_of<T>(positive ? -x : x);
  const T large = T(1) / (T(1) + e);
  const T small = e * large;
  return positive ? Logistic<T>{large, small} : Logistic<T>{small, large};
}

/// tanh(x) to a few epsilon, relative, for every finite float: the odd series, fitted, where the
/// other form would cancel; else 1 - 2 e / (1 + e) with e = exp(-2|x|).
WGRAD_INLINE float tanh_f32(float x) {
  const float magnitude = x < 0.0f ? -x : x;
  const float square = x * x;
  float series = 1.7241492e-2f;
  series = series * square - 5.3045495e-2f;
  series = series * square + 1.3325879e-1f;
  series = series * square - 3.3333144e-1f;
  const float small = x + x * square * series;
  const float e = exp_f32(-2.0f * magnitude);
  const float large = 1.0f - 2.0f * e / (1.0f + e);
  return magnitude < 0.5f ? small : x < 0.0f ? -large : large;
}

template <class T>
WGRAD_INLINE T tanh_of(const T& x) {
  if constexpr (std::is_same_v<T, float>) {
    return tanh_f32(x);
  } else {
    return std::tanh(x);
  }
}

/// The distribution function of the standard normal distribution and its derivative.
template <class T>
struct Normal {
  T below;    // of the values below x
  T density;  // at x
};

/// exp(-x^2 / 2) times a fitted polynomial in 1 / (1 + 0.27 |x|) for negative x, to 16 + x^2
/// epsilon, relative; the complement of that for positive x.
WGRAD_INLINE Normal<float> normal_f32(float x) {
  const float magnitude = x < 0.0f ? -x : x;
  const float bounded = magnitude < 14.0f ? magnitude : 14.0f;  // the tail is 0 from 13.2 on
  const float e = exp_f32(-0.5f * bounded * bounded);
  const float t = 1.0f / (1.0f + 0.27f * bounded);
  float p = 2.877844436e-2f;
  p = p * t - 0.1255641394f;
  p = p * t + 0.1678020601f;
  p = p * t - 6.683643425e-2f;
  p = p * t + 0.1061020786f;
  p = p * t + 7.28248649e-2f;
  p = p * t + 0.1016001183f;
  p = p * t + 0.1075743409f;
  p = p * t + 0.1077186777f;
  const float tail = e * (t * p);
  return {x < 0.0f ? tail : 1.0f - tail, 0.3989422804f * e};
}

/// For a complex x by the series Phi(x) = 1/2 + density(x) (x + x^3 / 3 + x^5 / 15 + ...).
template <class T>
WGRAD_INLINE Normal<T> normal_of(const T& x) {
  constexpr double kInverseRoot2 = 0.70710678118654752, kInverseRoot2Pi = 0.39894228040143268;
  if constexpr (std::is_same_v<T, float>) {
    return normal_f32(x);
  } else if constexpr (std::is_same_v<T, double>) {
    return {0.5 * std::erfc(-x * kInverseRoot2), kInverseRoot2Pi * std::exp(-0.5 * x * x)};
  } else {
    const T density = constant<T>(kInverseRoot2Pi) * std::exp(constant<T>(-0.5) * x * x);
    T sum(0), term = x;
    for (int k = 1; sum + term != sum; ++k) {
      sum += term;
      term *= x * x / constant<T>(2.0 * k + 1.0);
    }
    return {constant<T>(0.5) + density * sum, density};
  }
}

}  // namespace wgrad::cpu
