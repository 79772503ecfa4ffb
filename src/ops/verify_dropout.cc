#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "cpu/dropout.h"
#include "ops/elementwise.h"
#include "ops/verify_families.h"

namespace wgrad::ops {
namespace {

VerifyResult dropout_case(Context& ctx, const std::string& what, int64_t n, float p,
                          DropoutKey key) {
  VerifyCheck check("dropout", what, "core");
  const size_t count = static_cast<size_t>(n);
  const std::vector<float> x = verify_decades(count, 51), y = verify_decades(count, 52);
  std::vector<float> expected(count);
  cpu::dropout(x.data(), expected.data(), n, static_cast<double>(p), key.seed, key.stream);

  const Tensor tx = ctx.make<float>({n}, DType::kF32, x, "verify");
  const Tensor ty = ctx.make<float>({n}, DType::kF32, y, "verify");
  dropout(ctx, tx, ty, p, key);
  check.require(ctx.read<float>(ty) == expected, "the result has the CPU's bits");

  ctx.upload<float>(ty, y);
  dropout(ctx, tx, ty, p, key, true);
  std::vector<double> sum(count);
  for (size_t i = 0; i < count; ++i) {
    sum[i] = static_cast<double>(y[i]) + static_cast<double>(expected[i]);
  }
  check.compare("y", ctx.read<float>(ty), sum, [&](size_t i) {
    return kF32Rounding * (std::abs(sum[i]) + std::abs(static_cast<double>(expected[i])));
  });

  dropout(ctx, tx, tx, p, key);
  check.require(ctx.read<float>(tx) == expected, "in place gives the same");
  return check.result();
}

}  // namespace

void add_dropout_cases(const Context&, VerifyLevel level, std::vector<VerifyCase>& cases) {
  std::vector<std::pair<int64_t, float>> shapes;
  std::vector<int64_t> sizes = {1, 33, 260, 40003};
  if (level == VerifyLevel::kFull) {
    sizes.insert(sizes.end(), {2, 3, 257});
    shapes.emplace_back(16777301, 0.1f);
  }
  for (int64_t n : sizes) {
    for (float p : {0.0f, 0.1f, 0.75f}) shapes.emplace_back(n, p);
  }
  for (const auto& [n, p] : shapes) {
    const std::string what = fmt::format("n {}, p {}", n, p);
    const DropoutKey key{0xfedcba9876543210u + static_cast<uint64_t>(n), 0x123456789abcdefu};
    cases.push_back({"dropout", what, [=, n = n, p = p](Context& ctx) {
                       return dropout_case(ctx, what, n, p, key);
                     }});
  }
}

}  // namespace wgrad::ops
