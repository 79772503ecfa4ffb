#include "io/half.h"

#include <cmath>
#include <limits>

#include "testing.h"

namespace wgrad::io {
namespace {

// What the bits mean by the definition of the format: `exponent_bits` and `fraction_bits`.
double meaning(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const bool negative = (bits >> (exponent_bits + fraction_bits)) != 0;
  const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const double fraction = bits & ((1u << fraction_bits) - 1);
  double value = 0;
  if (exponent == (1 << exponent_bits) - 1) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - bias - fraction_bits);
  } else {
    value = std::ldexp(fraction + std::ldexp(1.0, fraction_bits), exponent - bias - fraction_bits);
  }
  return negative ? -value : value;
}

struct Format {
  int exponent_bits;
  int fraction_bits;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);

  std::uint32_t infinity() const { return ((1u << exponent_bits) - 1) << fraction_bits; }
};

constexpr Format kHalf = {5, 10, f16_to_f32, f32_to_f16};
constexpr Format kBrain = {8, 7, bf16_to_f32, f32_to_bf16};

class HalfFormats : public ::testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(Both, HalfFormats, ::testing::Values(kHalf, kBrain));

TEST_P(HalfFormats, WidenEveryValueExactly) {
  const Format& f = GetParam();
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double expected = meaning(bits, f.exponent_bits, f.fraction_bits);
    const float got = f.widen(static_cast<std::uint16_t>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(got, expected) << bits;
    }
    ASSERT_EQ(std::signbit(got), bits >= 0x8000) << bits;
  }
}

TEST_P(HalfFormats, NarrowTheirOwnValuesBack) {
  const Format& f = GetParam();
  const std::uint32_t quiet = 1u << (f.fraction_bits - 1);
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bool nan = (bits & 0x7fff) > f.infinity();
    const std::uint32_t expected = nan ? bits | quiet : bits;
    ASSERT_EQ(f.narrow(f.widen(static_cast<std::uint16_t>(bits))), expected) << bits;
  }
}

TEST_P(HalfFormats, RoundToNearestAndTiesToEven) {
  const Format& f = GetParam();
  const float inf = std::numeric_limits<float>::infinity();
  for (std::uint32_t lower = 0; lower < f.infinity(); ++lower) {
    // The step above the largest finite value counts as if the format went on.
    const double below = meaning(lower, f.exponent_bits, f.fraction_bits);
    const double step = lower + 1 < f.infinity()
                            ? meaning(lower + 1, f.exponent_bits, f.fraction_bits) - below
                            : below - meaning(lower - 1, f.exponent_bits, f.fraction_bits);
    const auto middle = static_cast<float>(below + step / 2);
    ASSERT_EQ(middle, below + step / 2) << "the middle of two neighbours is a float";
    const std::uint32_t even = lower % 2 == 0 ? lower : lower + 1;
    ASSERT_EQ(f.narrow(middle), even) << lower;
    ASSERT_EQ(f.narrow(-middle), even | 0x8000) << lower;
    ASSERT_EQ(f.narrow(std::nextafter(middle, 0.0f)), lower) << lower;
    ASSERT_EQ(f.narrow(std::nextafter(middle, inf)), lower + 1) << lower;
    ASSERT_EQ(f.narrow(-std::nextafter(middle, inf)), (lower + 1) | 0x8000) << lower;
  }
}

TEST(Half, ConvertsExtremesOfFloat) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f32_to_f16(inf), 0x7c00);
  EXPECT_EQ(f32_to_f16(-inf), 0xfc00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(f32_to_f16(65504.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Half, IsUsableAtCompileTime) {
  static_assert(f16_to_f32(0x3c00) == 1.0f);
  static_assert(f32_to_f16(-2.0f) == 0xc000);
  static_assert(bf16_to_f32(0x3f80) == 1.0f);
  static_assert(f32_to_bf16(1.0f) == 0x3f80);
}

}  // namespace
}  // namespace wgrad::io
