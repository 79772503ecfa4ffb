#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/scalar.h"
#include "cpu/vector_math.h"

/// Sums and maxima over one row, to be inlined into the functions that are compiled for several
/// vector widths.
namespace wgrad::cpu {

/// A sum that carries the rounding error of each addition along (Kahan): its error stays at a few
/// units in the last place, however many terms there are.
template <class T>
class CompensatedSum {
 public:
  void add(const T& x) {
    const T corrected = x - error_;
    const T next = sum_ + corrected;
    error_ = (next - sum_) - corrected;
    sum_ = next;
  }
  T value() const { return sum_; }

 private:
  T sum_{0};
  T error_{0};
};

/// Sum of term(j) for j in [0, n): blocks of 128 are summed as they are, the blocks' sums in double
/// and compensated, so the error does not grow with n.
template <class T, class Term>
WGRAD_INLINE Sum<T> sum_blocks(int64_t n, const Term& term) {
  constexpr int64_t kBlock = 128;
  CompensatedSum<Sum<T>> total;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    T sum(0);
    if constexpr (std::is_floating_point_v<T>) {
#pragma omp simd reduction(+ : sum)
      for (int64_t j = begin; j < end; ++j) sum += term(j);
    } else {
      for (int64_t j = begin; j < end; ++j) sum += term(j);
    }
    total.add(Sum<T>(sum));
  }
  return total.value();
}

/// The element with the largest real part; n > 0.
template <class T>
WGRAD_INLINE T row_max(const T* x, int64_t n) {
  T max = x[0];
  if constexpr (std::is_floating_point_v<T>) {
#pragma omp simd reduction(max : max)
    for (int64_t j = 0; j < n; ++j) max = x[j] > max ? x[j] : max;
  } else {
    for (int64_t j = 0; j < n; ++j) max = real_part(x[j]) > real_part(max) ? x[j] : max;
  }
  return max;
}

/// Sum of exp(x[j] - max).
template <class T>
WGRAD_INLINE Sum<T> sum_exp(const T* x, int64_t n, T max) {
  return sum_blocks<T>(n, [&](int64_t j) { return exp_of<T>(x[j] - max); });
}

}  // namespace wgrad::cpu
