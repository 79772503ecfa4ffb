#include <fmt/format.h>

#include <algorithm>

#include "cpu/nf4.h"
#include "ops/nf4.h"
#include "ops/verify_families.h"

namespace wgrad::ops {
namespace {

struct Case {
  int64_t n;
  bool decades;  ///< 1e-30 .. 1e30, else [-1, 1]
};

std::vector<float> inputs(const Case& c) {
  const auto n = static_cast<size_t>(c.n);
  std::vector<float> x = c.decades ? verify_decades(n, 71, -30.0, 30.0) : verify_uniform(n, 71);
  // A block of zeros, where there is one.
  if (n >= 192) std::fill(x.begin() + 64, x.begin() + 128, 0.0f);
  // Values that lie halfway between codes of a block whose absmax is 1.
  if (n >= 256 && !c.decades) {
    x[128] = 1.0f;
    for (size_t i = 0; i < 15; ++i) x[129 + i] = cpu::nf4_code_bounds()[i];
  }
  return x;
}

VerifyResult run_quantise(Context& ctx, const Case& c) {
  const std::vector<float> values = inputs(c);
  const auto words = static_cast<size_t>((c.n + 7) / 8);
  std::vector<uint8_t> expected(words * 4);
  std::vector<float> expected_absmax(static_cast<size_t>(cpu::nf4_blocks(c.n)));
  cpu::quantise_nf4(values.data(), c.n, expected.data(), expected_absmax.data());

  const Tensor x = ctx.make({c.n}, DType::kF32, std::span<const float>(values), "verify/x");
  const Tensor packed = ctx.allocate({static_cast<int64_t>(expected.size())}, DType::kU8, "verify");
  const Tensor absmax =
      ctx.allocate({static_cast<int64_t>(expected_absmax.size())}, DType::kF32, "verify");
  nf4_quantise(ctx, x, packed, absmax);
  const auto seen = ctx.read<uint8_t>(packed);
  const auto differs = std::mismatch(seen.begin(), seen.end(), expected.begin()).first;
  VerifyCheck check("nf4_quantise",
                    fmt::format("{} values, {}", c.n, c.decades ? "1e-30..1e30" : "-1..1"),
                    ctx.modelled() == DeviceKind::kCpu ? "cpu" : "core");
  check.require(differs == seen.end(),
                fmt::format("packed byte {} as bitsandbytes has it", differs - seen.begin()));
  check.compare("absmax", ctx.read<float>(absmax), to_double(expected_absmax),
                [](size_t) { return 0.0; });
  return check.result();
}

}  // namespace

void add_quantise_cases(const Context&, VerifyLevel, std::vector<VerifyCase>& cases) {
  // Whole blocks, a last block that is short, an odd number of values, one value, many workgroups.
  for (const Case& c :
       {Case{4096, false}, {100, false}, {64 * 37 + 33, true}, {1, false}, {64 * 1000, true}}) {
    cases.push_back({"nf4_quantise", fmt::format("{} values", c.n),
                     [c](Context& ctx) { return run_quantise(ctx, c); }});
  }
}

}  // namespace wgrad::ops
