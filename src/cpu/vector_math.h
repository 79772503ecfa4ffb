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

}  // namespace wgrad::cpu
