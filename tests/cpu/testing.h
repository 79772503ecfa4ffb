#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

/// What the tests of the CPU operations share.
namespace wgrad::cpu {

using Complex = std::complex<double>;

/// Standard normal values times `scale`, the same for the same seed.
inline std::vector<double> random_values(int64_t n, uint32_t seed, double scale = 1.0) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0.0, scale);
  std::vector<double> values(static_cast<size_t>(n));
  for (double& value : values) value = normal(generator);
  return values;
}

/// Values whose magnitudes spread evenly over ten decades, 1e-5 to 1e5, of both signs.
inline std::vector<double> ten_decades(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> exponent(-5.0, 5.0);
  std::vector<double> values(static_cast<size_t>(n));
  for (double& value : values) {
    value = std::pow(10.0, exponent(generator)) * (generator() % 2 == 0 ? 1.0 : -1.0);
  }
  return values;
}

template <class To, class From>
std::vector<To> converted(const std::vector<From>& values) {
  return std::vector<To>(values.begin(), values.end());
}

/// Rounded to f32 and back: what the double reference must see to be compared with float.
inline std::vector<double> rounded_to_f32(const std::vector<double>& values) {
  return converted<double>(converted<float>(values));
}

/// A scalar function of complex arguments: sum(weights * outputs) of the operation under test.
inline Complex weighted_sum(const std::vector<double>& weights,
                            const std::vector<Complex>& values) {
  Complex sum = 0.0;
  for (size_t i = 0; i < values.size(); ++i) sum += weights[i] * values[i];
  return sum;
}

/// Proves `gradient` against the complex step: for an analytic f, the derivative by an argument is
/// Im f(x + i h) / h without any cancellation, so h can be so small that no other error is left.
inline void expect_complex_step(const std::vector<double>& gradient, std::vector<Complex>& argument,
                                const std::function<Complex()>& f, const char* name) {
  constexpr double kStep = 1e-30;
  constexpr double kBound = 1e-11;
  ASSERT_EQ(gradient.size(), argument.size());
  for (size_t i = 0; i < argument.size(); ++i) {
    const Complex saved = argument[i];
    argument[i] += Complex(0.0, kStep);
    const double expected = f().imag() / kStep;
    argument[i] = saved;
    ASSERT_LE(std::abs(gradient[i] - expected), kBound * std::max(1.0, std::abs(expected)))
        << name << "[" << i << "]: " << gradient[i] << ", complex step " << expected;
  }
}

/// Every element within `absolute` + `relative` * |expected|.
template <class T>
void expect_close(const std::vector<T>& values, const std::vector<double>& expected,
                  double absolute, double relative, const char* name) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = static_cast<double>(values[i]);
    ASSERT_TRUE(std::isfinite(value)) << name << "[" << i << "]: " << value;
    ASSERT_LE(std::abs(value - expected[i]), absolute + relative * std::abs(expected[i]))
        << name << "[" << i << "]: " << value << ", expected " << expected[i];
  }
}

/// Runs `body` with 1, 2, 3 and 8 threads and expects the same bits each time.
template <class T>
void expect_same_bits_for_any_threads(const std::function<std::vector<T>()>& body) {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::vector<T> expected = body();
  for (int count : {2, 3, 8}) {
    omp_set_num_threads(count);
    const std::vector<T> values = body();
    EXPECT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size() && i < expected.size(); ++i) {
      if (values[i] == expected[i]) continue;
      ADD_FAILURE() << count << " threads, element " << i << ": " << values[i] << ", one thread "
                    << expected[i];
      break;
    }
  }
  omp_set_num_threads(threads);
}

inline constexpr double kEpsilon32 = std::numeric_limits<float>::epsilon();  // 2^-23

}  // namespace wgrad::cpu
