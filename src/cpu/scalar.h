#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>

/// What the CPU operations ask of a scalar.
///
/// Every operation is a template on T, instantiated for float (the device that users train on:
/// threads and vectors), double (the reference) and std::complex<double> (complex-step proofs of
/// the derivatives: comparisons look at the real part alone and nothing is ever conjugated, so that
/// every function stays analytic in its arguments).
namespace wgrad::cpu {

template <class T>
struct ScalarTraits {
  using Real = T;
  using Sum = T;
};

/// Long sums over f32 are carried in double.
template <>
struct ScalarTraits<float> {
  using Real = float;
  using Sum = double;
};

template <class R>
struct ScalarTraits<std::complex<R>> {
  using Real = R;
  using Sum = std::complex<R>;
};

template <class T>
using Real = typename ScalarTraits<T>::Real;

/// The type in which long sums over T are carried.
template <class T>
using Sum = typename ScalarTraits<T>::Sum;

/// The part of x that comparisons look at.
template <class T>
inline Real<T> real_part(const T& x) {
  if constexpr (std::is_floating_point_v<T>) {
    return x;
  } else {
    return x.real();
  }
}

/// A constant of the scalar's type.
template <class T>
inline T constant(double value) {
  return T(static_cast<Real<T>>(value));
}

}  // namespace wgrad::cpu
