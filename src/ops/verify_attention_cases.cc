#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/attention_matrix.h"
#include "ops/verify_attention.h"
#include "ops/verify_families.h"
#include "ops/verify_product.h"

namespace wgrad::ops {
namespace {

/// Runs one case with f32 products or, where the device has them, f16 subgroup matrices.
VerifyResult run_attention_case(Context& ctx, const AttentionCase& c, ComputeType compute) {
  const ComputeType before = ctx.compute();
  ctx.set_compute(compute);
  const bool matrices = attention_uses_matrices(ctx, c.shape, c.query_count());
  const AttentionInputs in = attention_inputs(c);
  AttentionOutputs seen;
  try {
    seen = run_attention(ctx, c, in);
  } catch (...) {
    ctx.set_compute(before);
    throw;
  }
  ctx.set_compute(before);
  AttentionRounding rounding;
  // WGSL may convert to either neighbour: a whole unit in the last place of f16.
  if (matrices) rounding.operands = 0x1p-10;
  return check_attention(c, attention_reference(c, in, rounding), seen,
                         ctx.modelled() == DeviceKind::kCpu ? "cpu"
                         : matrices                         ? "matrix"
                                                            : "core");
}

AttentionCase make_case(int64_t heads, int64_t kv_heads, int64_t head_dim,
                        std::vector<int64_t> rows, int64_t window = 0) {
  AttentionCase c;
  c.shape.heads = heads;
  c.shape.kv_heads = kv_heads;
  c.shape.head_dim = head_dim;
  c.shape.window = window;
  c.shape.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  c.rows = std::move(rows);
  return c;
}

AttentionCase with_magnitude(AttentionCase c, float of_scores, float of_gradient) {
  c.magnitude = of_scores;
  c.grad_magnitude = of_gradient;
  return c;
}

/// The last `queries` tokens as queries after the keys of the others.
AttentionCase generating(AttentionCase c, int64_t queries) {
  c.queries = queries;
  c.shape.query_offset = c.keys() - queries;
  return c;
}

std::vector<AttentionCase> attention_cases(VerifyLevel level) {
  std::vector<AttentionCase> cases = {
      make_case(4, 2, 64, {1}),
      make_case(9, 3, 64, {1, 33, 1, 7, 65, 31, 90}),
      make_case(2, 1, 64, {40, 150, 3}, 17),
      with_magnitude(make_case(2, 1, 64, {130, 70}), 12.0f, 1.0f),
      with_magnitude(make_case(2, 2, 64, {64, 33}), 1e-6f, 1e-7f),
      with_magnitude(make_case(2, 1, 64, {33, 70}), 1.0f, 1e6f),
      make_case(4, 2, 80, {37, 64}),
      generating(make_case(4, 2, 64, {700}), 1),
      generating(make_case(2, 1, 64, {200}), 70),
  };
  if (level == VerifyLevel::kQuick) return cases;
  const std::vector<AttentionCase> more = {
      make_case(8, 1, 128, {5, 77, 60, 128, 1, 33}),
      make_case(4, 4, 128, {260}),
      make_case(4, 1, 128, {100, 300}, 50),
      with_magnitude(make_case(4, 2, 128, {200, 100}), 10.0f, 1e-3f),
      make_case(4, 2, 30, {33, 70}),
      make_case(4, 2, 96, {130}),
      make_case(4, 2, 112, {64, 64, 64}),
      make_case(2, 1, 256, {100, 31}),
      make_case(3, 1, 1, {70}),
      make_case(2, 2, 250, {65}),
      make_case(6, 2, 64, {1000, 517}),
      make_case(4, 2, 128, {1000, 517}),
      make_case(8, 2, 64, std::vector<int64_t>(300, 1)),
      make_case(4, 1, 64, {2000}, 128),
      generating(make_case(32, 8, 128, {3000}), 1),
      generating(make_case(8, 2, 128, {1000}, 256), 5),
      generating(make_case(4, 2, 128, {50, 600}), 300),
  };
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

/// The operands' powers of two, from the largest norm, and that nothing is lost in packing.
VerifyResult run_pack_case(Context& ctx, int64_t head_dim, float magnitude) {
  constexpr int64_t kTokens = 37, kHeads = 3;
  AttentionShape s;
  s.heads = s.kv_heads = kHeads;
  s.head_dim = head_dim;
  const size_t n = static_cast<size_t>(kTokens * kHeads * head_dim);
  const std::vector<float> values = verify_uniform(n, 5, magnitude);
  const Tensor x =
      ctx.make<float>({kTokens, kHeads * head_dim}, DType::kF32, values, "verify/attention");
  const AttentionOperands operands(ctx, s, kTokens, kTokens, true);
  operands.pack(ctx, x, x, x, x);
  VerifyCheck check("attention_pack", fmt::format("head_dim {}, to {}", head_dim, magnitude),
                    "core");
  double norm = 0;
  for (size_t cell = 0; cell < n; cell += static_cast<size_t>(head_dim)) {
    double sum = 0;
    for (size_t e = cell; e < cell + static_cast<size_t>(head_dim); ++e) {
      sum += static_cast<double>(values[e]) * static_cast<double>(values[e]);
    }
    norm = std::max(norm, std::sqrt(sum));
  }
  const std::vector<float> factors = ctx.read<float>(operands.factors);
  for (size_t slot = 0; slot < 4; ++slot) {
    const double scaled = norm * static_cast<double>(factors[slot * 2]);
    check.require(scaled >= 0x1p14 * (1 - 1e-5) && scaled < 0x1p15 * (1 + 1e-5),
                  "the largest norm lies in [2^14, 2^15)");
    check.require(factors[slot * 2] * factors[slot * 2 + 1] == 1.0f, "the inverse is exact");
  }
  const int64_t packed = attention_packed_dim(head_dim);
  const std::vector<uint16_t> halves = ctx.read<uint16_t>(operands.q);
  std::vector<float> seen;
  std::vector<double> expected;
  for (size_t i = 0; i < halves.size(); ++i) {
    const size_t cell = i / static_cast<size_t>(packed), e = i % static_cast<size_t>(packed);
    const size_t from = cell % static_cast<size_t>(kTokens * kHeads);
    seen.push_back(static_cast<float>(half_value(halves[i])));
    expected.push_back(e < static_cast<size_t>(head_dim)
                           ? static_cast<double>(values[from * static_cast<size_t>(head_dim) + e]) *
                                 static_cast<double>(factors[0])
                           : 0.0);
  }
  check.compare("packed", seen, expected,
                [&](size_t i) { return std::abs(expected[i]) * 0x1p-10 + 0x1p-24; });
  return check.result();
}

}  // namespace

void add_attention_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases) {
  for (const AttentionCase& c : attention_cases(level)) {
    cases.push_back({"attention", c.describe(),
                     [c](Context& on) { return run_attention_case(on, c, ComputeType::kF32); }});
    if (!has_attention_matrices(ctx)) continue;
    cases.push_back({"attention", c.describe() + ", f16",
                     [c](Context& on) { return run_attention_case(on, c, ComputeType::kF16); }});
  }
  if (ctx.modelled() == DeviceKind::kCpu) return;
  for (int64_t head_dim : {30, 64, 128}) {
    for (float magnitude : {1e-12f, 1.0f, 1e12f}) {
      cases.push_back({"attention_pack", fmt::format("head_dim {}, to {}", head_dim, magnitude),
                       [=](Context& on) { return run_pack_case(on, head_dim, magnitude); }});
    }
  }
}

}  // namespace wgrad::ops
