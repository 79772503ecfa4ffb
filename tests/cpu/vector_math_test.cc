#include "cpu/vector_math.h"

#include <algorithm>

#include "testing.h"

namespace wgrad::cpu {
namespace {

TEST(Exp, IsGoodToTwoEpsilonOverItsRange) {
  for (int i = -87 * 4096; i <= 88 * 4096; ++i) {
    const float x = static_cast<float>(i) / 4096.0f;
    const double expected = std::exp(static_cast<double>(x));
    ASSERT_LE(std::abs(static_cast<double>(exp_f32(x)) - expected), 2.0 * kEpsilon32 * expected)
        << x;
  }
}

TEST(Exp, IsOneAtZeroAndZeroFarBelow) {
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-87.5f), 0.0f);
  EXPECT_EQ(exp_f32(-3e38f), 0.0f);
  EXPECT_EQ(exp_f32(-std::numeric_limits<float>::infinity()), 0.0f);
}

TEST(Tanh, IsGoodToAFewEpsilonAndFiniteEverywhere) {
  // Where the two forms meet, 2 e / (1 + e) is 1.16 times the result and errs by 2 epsilon of e.
  for (int i = -12 * 4096; i <= 12 * 4096; ++i) {
    const float x = static_cast<float>(i) / 4096.0f;
    const double expected = std::tanh(static_cast<double>(x));
    ASSERT_LE(std::abs(static_cast<double>(tanh_f32(x)) - expected),
              3.0 * kEpsilon32 * std::abs(expected))
        << x;
  }
  EXPECT_EQ(tanh_f32(1e-30f), 1e-30f);
  EXPECT_EQ(tanh_f32(3e38f), 1.0f);
  EXPECT_EQ(tanh_f32(-3e38f), -1.0f);
}

TEST(Normal, KeepsItsTails) {
  for (int i = -13 * 1024; i <= 13 * 1024; ++i) {
    const double x = static_cast<double>(i) / 1024.0;
    const Normal<double> expected = normal_of(x);
    const Normal<float> seen = normal_of(static_cast<float>(x));
    const double bound = (16.0 + x * x) * kEpsilon32;
    ASSERT_LE(std::abs(static_cast<double>(seen.below) - expected.below),
              bound * std::min(expected.below, 1.0 - 0.5 * expected.below) + 1e-37)
        << x;
    ASSERT_LE(std::abs(static_cast<double>(seen.density) - expected.density),
              bound * expected.density + 1e-37)
        << x;
  }
  for (double x : {-5.0, -1.0, -1e-9, 0.0, 0.5, 3.0, 6.0}) {
    EXPECT_NEAR(normal_of(Complex(x)).below.real(), normal_of(x).below, 4e-16);
  }
  EXPECT_EQ(normal_f32(-3e38f).below, 0.0f);
  EXPECT_EQ(normal_f32(3e38f).below, 1.0f);
}

TEST(Logistic, KeepsSmallValuesAndComplements) {
  for (double x : {-700.0, -40.0, -1.0, 0.0, 1.0, 40.0, 700.0}) {
    const Logistic<double> s = logistic(x);
    EXPECT_DOUBLE_EQ(s.value, 1.0 / (1.0 + std::exp(-x)));
    EXPECT_DOUBLE_EQ(s.complement, 1.0 / (1.0 + std::exp(x)));
  }
}

}  // namespace
}  // namespace wgrad::cpu
