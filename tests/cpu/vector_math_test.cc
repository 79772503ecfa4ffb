#include "cpu/vector_math.h"

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

TEST(Logistic, KeepsSmallValuesAndComplements) {
  for (double x : {-700.0, -40.0, -1.0, 0.0, 1.0, 40.0, 700.0}) {
    const Logistic<double> s = logistic(x);
    EXPECT_DOUBLE_EQ(s.value, 1.0 / (1.0 + std::exp(-x)));
    EXPECT_DOUBLE_EQ(s.complement, 1.0 / (1.0 + std::exp(x)));
  }
}

}  // namespace
}  // namespace wgrad::cpu
