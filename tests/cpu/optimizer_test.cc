#include "cpu/optimizer.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "testing.h"

namespace wgrad::cpu {
namespace {

constexpr int64_t kParameters = 37;
constexpr int kSteps = 1000;

/// As tools/goldens/make_adamw_golden.py has them.
template <class T>
std::vector<T> initial_parameters() {
  std::vector<T> p;
  for (int i = 0; i < kParameters; ++i) p.push_back(T((i * 37 % 101 - 50) / 64.0));
  return p;
}

template <class T>
std::vector<T> gradient(int step) {
  std::vector<T> g;
  for (int i = 0; i < kParameters; ++i) {
    g.push_back(T(((i * 7919 + step * 104729) % 2049 - 900) / 1024.0 * std::exp2(i % 9 - 6)));
  }
  return g;
}

AdamWStep golden_step(int t) {
  AdamWStep step;
  step.learning_rate = 1e-3;
  step.weight_decay = 0.01;
  step.bias_correction1 = 1.0 - std::pow(step.beta1, t);
  step.bias_correction2 = 1.0 - std::pow(step.beta2, t);
  return step;
}

template <class T>
std::vector<T> parameters_after_all_steps(double grad_factor) {
  std::vector<T> p = initial_parameters<T>();
  std::vector<T> m(p.size());
  std::vector<T> v(p.size());
  for (int t = 1; t <= kSteps; ++t) {
    std::vector<T> g = gradient<T>(t);
    for (T& value : g) value /= T(grad_factor);
    adamw_step(p.data(), g.data(), m.data(), v.data(), kParameters, golden_step(t), grad_factor);
  }
  return p;
}

std::vector<float> torch_parameters() {
  std::ifstream file(std::string(WGRAD_TEST_DATA) + "/adamw/parameters.f32", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(AdamW, FollowsPyTorchForAThousandSteps) {
  const std::vector<double> expected = converted<double>(torch_parameters());
  ASSERT_EQ(expected.size(), static_cast<size_t>(kParameters));
  expect_close(parameters_after_all_steps<float>(1.0), expected, 1e-6, 1e-6, "float");
}

TEST(AdamW, FloatFollowsDouble) {
  // 1 - lr weight_decay is half an epsilon off at most, the same way each step; the other
  // roundings, about four a step on values below 2, differ in sign.
  const double bound = kSteps * 0.5 * kEpsilon32 + 4.0 * std::sqrt(kSteps) * 2.0 * kEpsilon32;
  expect_close(parameters_after_all_steps<float>(1.0), parameters_after_all_steps<double>(1.0),
               bound, 0.0, "float");
}

TEST(AdamW, ScalesTheGradientBeforeAnythingElse) {
  const std::vector<double> expected = parameters_after_all_steps<double>(1.0);
  expect_close(parameters_after_all_steps<double>(0.25), expected, 1e-14, 1e-13, "scaled");
}

TEST(AdamW, DecaysTheParameterApartFromTheGradient) {
  AdamWStep step = golden_step(1);
  step.learning_rate = 0.5;
  step.weight_decay = 0.1;
  std::vector<double> p = {2.0, -3.0};
  const std::vector<double> g = {0.0, 0.0};
  std::vector<double> m(2);
  std::vector<double> v(2);
  adamw_step(p.data(), g.data(), m.data(), v.data(), 2, step);
  EXPECT_DOUBLE_EQ(p[0], 2.0 * 0.95);
  EXPECT_DOUBLE_EQ(p[1], -3.0 * 0.95);
  EXPECT_EQ(m, std::vector<double>(2, 0.0));
  EXPECT_EQ(v, std::vector<double>(2, 0.0));
}

TEST(AdamW, FirstStepMovesByTheLearningRateWhateverTheGradient) {
  AdamWStep step = golden_step(1);
  step.weight_decay = 0.0;
  const std::vector<double> g = ten_decades(99, 1);
  std::vector<float> p(g.size(), 0.0f);
  std::vector<float> m(g.size());
  std::vector<float> v(g.size());
  adamw_step(p.data(), converted<float>(g).data(), m.data(), v.data(), 99, step);
  for (size_t i = 0; i < g.size(); ++i) {
    const double expected = -1e-3 * g[i] / (std::abs(g[i]) + 1e-8);
    ASSERT_NEAR(p[i], expected, 1e-3 * 8.0 * kEpsilon32);
  }
}

TEST(SumSquares, FollowsDoubleOverTenDecades) {
  for (int64_t n : {0, 1, 7, 8192, 8193, 100001}) {
    const std::vector<float> x = converted<float>(ten_decades(n, 3));
    double expected = 0.0;
    for (float value : x) expected += static_cast<double>(value) * static_cast<double>(value);
    // Every term is exact in double; only the additions round.
    EXPECT_NEAR(sum_squares(x.data(), n), expected, 2.3e-16 * static_cast<double>(n) * expected);
  }
}

TEST(SumSquares, DoesNotOverflowF32) {
  const std::vector<float> x(3, 3e38f);
  EXPECT_NEAR(sum_squares(x.data(), 3) / (3.0 * 9e76), 1.0, 1e-6);
}

TEST(SumSquares, GivesTheSameBitsForAnyNumberOfThreads) {
  const std::vector<float> x = converted<float>(random_values(100001, 4));
  expect_same_bits_for_any_threads<double>(
      [&] { return std::vector<double>{sum_squares(x.data(), 100001)}; });
}

TEST(AdamW, GivesTheSameBitsForAnyNumberOfThreads) {
  const int64_t n = 40001;
  const std::vector<float> g = converted<float>(random_values(n, 5));
  expect_same_bits_for_any_threads<float>([&] {
    std::vector<float> p = converted<float>(random_values(n, 6));
    std::vector<float> m(p.size());
    std::vector<float> v(p.size());
    adamw_step(p.data(), g.data(), m.data(), v.data(), n, golden_step(1));
    return p;
  });
}

}  // namespace
}  // namespace wgrad::cpu
