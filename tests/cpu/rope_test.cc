#include "cpu/rope.h"

#include "testing.h"

namespace wgrad::cpu {
namespace {

constexpr RopePairing kPairings[] = {RopePairing::kInterleaved, RopePairing::kHalfSplit};

TEST(Rope, BackwardIsTheDerivativeOfForward) {
  const int64_t tokens = 5;
  const int64_t heads = 3;
  const int64_t head_dim = 10;
  const std::vector<uint32_t> positions = {0, 1, 2, 0, 7};
  for (RopePairing pairing : kPairings) {
    for (int64_t rotary_dim : {2, 6, 10}) {
      const std::vector<double> inv_freq = rope_inv_freq(100.0, rotary_dim);
      const std::vector<double> table = rope_table<double>(inv_freq, 8);
      const std::vector<Complex> complex_table = rope_table<Complex>(inv_freq, 8);
      const std::vector<double> grad_y = random_values(tokens * heads * head_dim, 1);
      std::vector<double> grad_x(grad_y.size());
      rope_apply(grad_y.data(), grad_x.data(), positions.data(), table.data(), tokens, heads,
                 head_dim, rotary_dim, pairing, true);
      std::vector<Complex> x = converted<Complex>(random_values(tokens * heads * head_dim, 2));
      std::vector<Complex> y(x.size());
      expect_complex_step(
          grad_x, x,
          [&] {
            rope_apply(x.data(), y.data(), positions.data(), complex_table.data(), tokens, heads,
                       head_dim, rotary_dim, pairing, false);
            return weighted_sum(grad_y, y);
          },
          "grad_x");
    }
  }
}

TEST(Rope, RotatesThePairsByThePositionTimesTheFrequency) {
  const std::vector<double> inv_freq = rope_inv_freq(10000.0, 4);
  ASSERT_EQ(inv_freq.size(), 2u);
  EXPECT_DOUBLE_EQ(inv_freq[0], 1.0);
  EXPECT_DOUBLE_EQ(inv_freq[1], 0.01);
  const std::vector<double> table = rope_table<double>(inv_freq, 4);
  const std::vector<uint32_t> positions = {3};
  const std::vector<double> x = {1.0, 2.0, 3.0, 4.0, 5.0};
  std::vector<double> y(5);
  rope_apply(x.data(), y.data(), positions.data(), table.data(), 1, 1, 5, 4,
             RopePairing::kInterleaved, false);
  EXPECT_DOUBLE_EQ(y[0], std::cos(3.0) - 2.0 * std::sin(3.0));
  EXPECT_DOUBLE_EQ(y[1], 2.0 * std::cos(3.0) + std::sin(3.0));
  EXPECT_DOUBLE_EQ(y[2], 3.0 * std::cos(0.03) - 4.0 * std::sin(0.03));
  EXPECT_DOUBLE_EQ(y[3], 4.0 * std::cos(0.03) + 3.0 * std::sin(0.03));
  EXPECT_EQ(y[4], 5.0);
  rope_apply(x.data(), y.data(), positions.data(), table.data(), 1, 1, 5, 4,
             RopePairing::kHalfSplit, false);
  EXPECT_DOUBLE_EQ(y[0], std::cos(3.0) - 3.0 * std::sin(3.0));
  EXPECT_DOUBLE_EQ(y[2], 3.0 * std::cos(3.0) + std::sin(3.0));
  EXPECT_DOUBLE_EQ(y[1], 2.0 * std::cos(0.03) - 4.0 * std::sin(0.03));
  EXPECT_DOUBLE_EQ(y[3], 4.0 * std::cos(0.03) + 2.0 * std::sin(0.03));
  EXPECT_EQ(y[4], 5.0);
}

TEST(Rope, AnglesAreExactToFloatAtPosition131072) {
  const std::vector<double> inv_freq = rope_inv_freq(10000.0, 8);
  const int64_t positions = 131073;
  const std::vector<float> table = rope_table<float>(inv_freq, positions);
  const float* last = table.data() + (positions - 1) * 8;
  for (size_t i = 0; i < 4; ++i) {
    const long double angle =
        131072.0L * std::pow(10000.0L, -2.0L * static_cast<long double>(i) / 8);
    // Half an epsilon of the value, and the angle's own rounding in double, 131072 * 2^-53.
    EXPECT_NEAR(last[2 * i], std::cos(angle), 0.5 * kEpsilon32 + 3e-11) << i;
    EXPECT_NEAR(last[2 * i + 1], std::sin(angle), 0.5 * kEpsilon32 + 3e-11) << i;
  }
}

TEST(Rope, ScalesTheTableByAFactor) {
  const std::vector<double> plain = rope_table<double>({0.5}, 3);
  const std::vector<double> scaled = rope_table<double>({0.5}, 3, 1.25);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_DOUBLE_EQ(scaled[i], 1.25 * plain[i]);
}

TEST(Rope, InverseUndoesTheRotationAndBothWorkInPlace) {
  const int64_t tokens = 33;
  const int64_t heads = 2;
  const int64_t head_dim = 34;
  std::vector<uint32_t> positions(tokens);
  for (int64_t t = 0; t < tokens; ++t) positions[t] = static_cast<uint32_t>(t * 7 % 40);
  const std::vector<float> table = rope_table<float>(rope_inv_freq(1e4, 34), 40);
  const std::vector<float> x = converted<float>(ten_decades(tokens * heads * head_dim, 3));
  for (RopePairing pairing : kPairings) {
    std::vector<float> y(x.size());
    rope_apply(x.data(), y.data(), positions.data(), table.data(), tokens, heads, head_dim, 34,
               pairing, false);
    std::vector<float> in_place = x;
    rope_apply(in_place.data(), in_place.data(), positions.data(), table.data(), tokens, heads,
               head_dim, 34, pairing, false);
    EXPECT_EQ(in_place, y);
    rope_apply(y.data(), y.data(), positions.data(), table.data(), tokens, heads, head_dim, 34,
               pairing, true);
    // A pair's norm is at most 1.5e5; two rotations of three roundings each, and the table's own.
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i], 8.0 * kEpsilon32 * 1.5e5);
  }
}

TEST(Rope, GivesTheSameBitsForAnyNumberOfThreads) {
  const std::vector<float> table = rope_table<float>(rope_inv_freq(1e4, 64), 300);
  std::vector<uint32_t> positions(300);
  for (uint32_t t = 0; t < 300; ++t) positions[t] = t;
  expect_same_bits_for_any_threads<float>([&] {
    std::vector<float> x = converted<float>(random_values(300 * 9 * 64, 1));
    rope_apply(x.data(), x.data(), positions.data(), table.data(), 300, 9, 64, 64,
               RopePairing::kHalfSplit, false);
    return x;
  });
}

}  // namespace
}  // namespace wgrad::cpu
