#include "cpu/dropout.h"

#include "testing.h"

namespace wgrad::cpu {
namespace {

using Words = std::array<uint32_t, 4>;

TEST(Philox, GivesThePublishedWords) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Dropout, FollowsTheDefinitionOfItsMask) {
  const uint64_t seed = 0x123456789abcdef0;
  const uint64_t stream = 0xfedcba9876543210;
  const double p = 0.3;
  for (uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{255}, uint64_t{0x3fffffffe}}) {
    const int64_t n = 1033;
    const std::vector<float> x = converted<float>(random_values(n, 1));
    std::vector<float> y(x.size());
    dropout(x.data(), y.data(), n, p, seed, stream, first);
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t element = first + static_cast<uint64_t>(i);
      const uint64_t block = element / 4;
      const Words words =
          philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                      static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                     {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
      const bool kept = words[element % 4] >= static_cast<uint32_t>(p * 4294967296.0);
      ASSERT_EQ(y[i], kept ? x[i] * static_cast<float>(1.0 / 0.7) : 0.0f) << first << " + " << i;
    }
  }
}

TEST(Dropout, KeepsTheExpectedShareAndTheMean) {
  const int64_t n = 100000;
  const std::vector<double> ones(n, 1.0);
  std::vector<double> y(ones.size());
  for (double p : {0.05, 0.5, 0.9}) {
    dropout(ones.data(), y.data(), n, p, 7, 1);
    double sum = 0.0;
    for (double value : y) sum += value;
    // Six standard deviations of a mean of n such values.
    EXPECT_NEAR(sum / n, 1.0, 6.0 * std::sqrt(p / (1.0 - p) / n));
  }
}

TEST(Dropout, WithoutDroppingChangesNothing) {
  const std::vector<float> x = converted<float>(random_values(77, 2));
  std::vector<float> y(x.size());
  dropout(x.data(), y.data(), 77, 0.0, 1, 1);
  EXPECT_EQ(y, x);
}

TEST(Dropout, SeedsAndStreamsDiffer) {
  const std::vector<float> x(256, 1.0f);
  const auto mask = [&](uint64_t seed, uint64_t stream) {
    std::vector<float> y(x.size());
    dropout(x.data(), y.data(), 256, 0.5, seed, stream);
    return y;
  };
  EXPECT_EQ(mask(1, 2), mask(1, 2));
  EXPECT_NE(mask(1, 2), mask(2, 2));
  EXPECT_NE(mask(1, 2), mask(1, 3));
  EXPECT_NE(mask(1, 2), mask(2, 1));
}

TEST(Dropout, IsTheDerivativeOfItself) {
  const int64_t n = 33;
  const std::vector<double> grad_y = random_values(n, 3);
  std::vector<double> grad_x(grad_y.size());
  dropout(grad_y.data(), grad_x.data(), n, 0.4, 5, 6);
  std::vector<Complex> x = converted<Complex>(random_values(n, 4));
  std::vector<Complex> y(x.size());
  expect_complex_step(
      grad_x, x,
      [&] {
        dropout(x.data(), y.data(), n, 0.4, 5, 6);
        return weighted_sum(grad_y, y);
      },
      "grad_x");
}

TEST(Dropout, GivesTheSameBitsForAnyNumberOfThreads) {
  const int64_t n = 50001;
  const std::vector<float> x = converted<float>(random_values(n, 8));
  expect_same_bits_for_any_threads<float>([&] {
    std::vector<float> y(x.size());
    dropout(x.data(), y.data(), n, 0.2, 1, 1, 3);
    return y;
  });
}

}  // namespace
}  // namespace wgrad::cpu
