#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "ops/linear.h"
#include "ops/weight.h"

namespace wgrad::ops {
namespace {

struct Cut {
  WeightFormat format;
  int64_t columns, begin, end;  ///< of 512 rows
  bool shares;                  ///< the memory of the whole
};

/// The values of a part are those of the whole, bit for bit, and it multiplies like a weight of its
/// own.
void expect_rows(Context& ctx, const Cut& cut) {
  constexpr int64_t kRows = 512;
  std::vector<float> values(static_cast<size_t>(kRows * cut.columns));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)) * (1 + i % 97));
  }
  const auto read = [&](int64_t begin, int64_t end, std::span<float> out) {
    std::copy(values.begin() + begin * cut.columns, values.begin() + end * cut.columns,
              out.begin());
  };
  const Weight whole = load_weight_as(ctx, cut.format, "w", kRows, cut.columns, read);
  const Weight part = weight_rows(ctx, whole, cut.begin, cut.end);
  EXPECT_EQ(part.out_features, cut.end - cut.begin);
  EXPECT_EQ(part.data.storage() == whole.data.storage(), cut.shares);

  const auto all = ctx.read<float>(weight_to_f32(ctx, whole));
  const std::vector<float> expected(all.begin() + cut.begin * cut.columns,
                                    all.begin() + cut.end * cut.columns);
  EXPECT_EQ(ctx.read<float>(weight_to_f32(ctx, part)), expected);

  const std::vector<float> x(static_cast<size_t>(cut.columns), 1.0f);
  const Tensor in = ctx.make<float>({1, cut.columns}, DType::kF32, x, "x");
  const Tensor y = ctx.allocate({1, kRows}, DType::kF32, "y");
  const Tensor y_part = ctx.allocate({1, part.out_features}, DType::kF32, "y");
  linear_forward(ctx, in, whole, Tensor(), y);
  linear_forward(ctx, in, part, Tensor(), y_part);
  const auto sums = ctx.read<float>(y), part_sums = ctx.read<float>(y_part);
  for (int64_t i = 0; i < part.out_features; ++i) {
    const float sum = sums[static_cast<size_t>(cut.begin + i)];
    // Sums of up to 64 terms below 97 in another order.
    EXPECT_NEAR(part_sums[static_cast<size_t>(i)], sum, 64 * 97 * 64 * 0x1p-24) << i;
  }
}

TEST(WeightRows, AreThoseOfTheWholeOnTheCpu) {
  const auto ctx = Context::cpu({});
  expect_rows(*ctx, {WeightFormat::kF32, 7, 5, 512, true});
  expect_rows(*ctx, {WeightFormat::kNF4, 64, 256, 512, true});
  // Not at a multiple of 256 blocks of 64.
  expect_rows(*ctx, {WeightFormat::kNF4, 24, 100, 300, false});
}

TEST(WeightRows, AreThoseOfTheWholeOnAGpu) {
  gpu::DeviceOptions options;
  options.selector = "software";
  options.checked = true;
  const auto ctx = Context::gpu(options, {});
  expect_rows(*ctx, {WeightFormat::kF32, 64, 3, 512, true});
  expect_rows(*ctx, {WeightFormat::kF32, 24, 5, 512, false});
  expect_rows(*ctx, {WeightFormat::kF16, 32, 4, 260, true});
  expect_rows(*ctx, {WeightFormat::kF16, 24, 4, 260, false});
  expect_rows(*ctx, {WeightFormat::kNF4, 64, 256, 512, true});
  expect_rows(*ctx, {WeightFormat::kNF4, 24, 100, 300, false});
}

}  // namespace
}  // namespace wgrad::ops
