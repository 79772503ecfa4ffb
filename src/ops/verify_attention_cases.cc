#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "ops/attention_matrix.h"
#include "ops/attention_pack.h"
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
  c.shape.longest_row = *std::max_element(rows.begin(), rows.end());
  c.rows = std::move(rows);
  return c;
}

AttentionCase with_magnitude(AttentionCase c, float of_scores, float of_gradient) {
  c.magnitude = of_scores;
  c.grad_magnitude = of_gradient;
  return c;
}

AttentionCase capped(AttentionCase c, float soft_cap) {
  c.shape.soft_cap = soft_cap;
  return c;
}

/// With this limit on the gradients of scores that are kept, where the longest row may be unknown.
AttentionCase keeping(AttentionCase c, int64_t limit, bool knows_rows = true) {
  c.shape.kept_scores_limit = limit;
  if (!knows_rows) c.shape.longest_row = 0;
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
      keeping(make_case(2, 1, 64, {40, 150, 3}, 17), 0),
      keeping(make_case(4, 2, 80, {37, 64}), 0),
      keeping(make_case(8, 4, 64, {100, 300}), 1 << 20),
      capped(make_case(4, 2, 64, {33, 70}, 20), 2.0f),
      capped(keeping(make_case(2, 1, 64, {40, 50}), 0), 2.0f),
      capped(make_case(2, 1, 80, {37, 64}), 3.0f),
      capped(keeping(make_case(2, 1, 80, {37, 40}), 0), 3.0f),
      capped(with_magnitude(make_case(2, 1, 30, {130, 7}), 30.0f, 1.0f), 50.0f),
      capped(generating(make_case(2, 1, 64, {300}), 2), 2.0f),
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
      capped(make_case(4, 2, 256, {100, 31}), 50.0f),
      capped(with_magnitude(make_case(4, 2, 128, {200, 100}), 10.0f, 1e-3f), 50.0f),
      capped(keeping(make_case(4, 2, 128, {500}, 128), 0), 1.0f),
      capped(keeping(make_case(4, 2, 64, {500}, 128), 0), 1.0f),
      capped(make_case(6, 2, 64, {1000, 517}), 0.5f),
      make_case(3, 1, 1, {70}),
      make_case(2, 2, 250, {65}),
      make_case(4, 2, 256, {20, 5, 1, 40}),
      make_case(8, 4, 256, {1000, 517}),
      make_case(4, 1, 256, {33, 200, 7, 167}, 50),
      make_case(4, 2, 192, {100, 300}),
      with_magnitude(make_case(4, 2, 256, {200, 100}), 10.0f, 1e-3f),
      with_magnitude(make_case(2, 1, 256, {300}), 12.0f, 1e6f),
      capped(make_case(8, 4, 256, {1000, 517}, 256), 50.0f),
      capped(make_case(4, 2, 144, {130, 70}, 64), 2.0f),
      keeping(make_case(8, 4, 256, {33, 200, 167}, 100), 3 << 19, false),
      keeping(make_case(2, 1, 256, {100, 31}), 0),
      generating(make_case(4, 2, 256, {50, 600}), 300),
      make_case(6, 2, 64, {1000, 517}),
      make_case(4, 2, 128, {1000, 517}),
      make_case(8, 2, 64, std::vector<int64_t>(300, 1)),
      make_case(4, 1, 64, {2000}, 128),
      keeping(make_case(4, 1, 64, {2000}, 128), 0),
      keeping(make_case(4, 2, 128, {1000, 517}), 0),
      keeping(make_case(8, 4, 128, {33, 200, 167}, 100), 3 << 19, false),
      keeping(make_case(6, 2, 64, {1000, 517}), int64_t{1} << 30, false),
      generating(make_case(32, 8, 128, {3000}), 1),
      generating(make_case(8, 2, 128, {1000}, 256), 5),
      generating(make_case(4, 2, 128, {50, 600}), 300),
  };
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

/// What one tensor became when it was packed: its power of two, and every element.
void check_packed(VerifyCheck& check, int64_t head_dim, const std::vector<float>& values,
                  std::span<const float> factor, std::span<const uint16_t> halves) {
  float largest = 0;
  for (float x : values) largest = std::max(largest, std::abs(x));
  const double bound = static_cast<double>(largest) * std::sqrt(static_cast<double>(head_dim)) *
                       static_cast<double>(factor[0]);
  check.require(bound >= 0x1p14 * (1 - 1e-5) && bound < 0x1p15 * (1 + 1e-5),
                "the bound on a norm lies in [2^14, 2^15)");
  check.require(factor[0] * factor[1] == 1.0f, "the inverse is exact");
  const auto packed = static_cast<size_t>(attention_packed_dim(head_dim));
  const auto length = static_cast<size_t>(head_dim);
  std::vector<float> seen;
  std::vector<double> expected;
  for (size_t i = 0; i < halves.size(); ++i) {
    const size_t cell = i / packed, e = i % packed;
    seen.push_back(static_cast<float>(half_value(halves[i])));
    expected.push_back(e < length ? static_cast<double>(values[cell * length + e]) *
                                        static_cast<double>(factor[0])
                                  : 0.0);
  }
  check.compare("packed", seen, expected,
                [&](size_t i) { return std::abs(expected[i]) * 0x1p-10 + 0x1p-24; });
}

/// The operands' powers of two, each from the largest element of its tensor, and that nothing is
/// lost in packing.
VerifyResult run_pack_case(Context& ctx, int64_t head_dim, float magnitude) {
  constexpr int64_t kTokens = 37, kHeads = 3, kKvHeads = 1;
  const auto values = [&](int64_t heads, uint64_t seed, float of) {
    return verify_uniform(static_cast<size_t>(kTokens * heads * head_dim), seed, of);
  };
  const auto tensor = [&](const std::vector<float>& x) {
    return ctx.make<float>({static_cast<int64_t>(x.size())}, DType::kF32, x, "verify/attention");
  };
  const auto q = values(kHeads, 5, magnitude), grad_out = values(kHeads, 6, magnitude * 300);
  const auto k = values(kKvHeads, 7, magnitude / 7), v = values(kKvHeads, 8, magnitude * 20);
  const AttentionOperands operands = attention_pack(ctx, head_dim, tensor(q), tensor(k), tensor(v));
  const Tensor grad = attention_pack_grad(ctx, head_dim, tensor(grad_out), operands.factors);
  VerifyCheck check("attention_pack", fmt::format("head_dim {}, to {}", head_dim, magnitude),
                    "core");
  const std::vector<float> factors = ctx.read<float>(operands.factors);
  const auto packed_q = ctx.read<uint16_t>(operands.q), packed_kv = ctx.read<uint16_t>(operands.kv);
  const auto packed_grad = ctx.read<uint16_t>(grad);
  const std::span<const float> slots(factors);
  const std::span<const uint16_t> both(packed_kv);
  check_packed(check, head_dim, q, slots.subspan(0, 2), packed_q);
  check_packed(check, head_dim, k, slots.subspan(2, 2), both.first(both.size() / 2));
  check_packed(check, head_dim, v, slots.subspan(4, 2), both.subspan(both.size() / 2));
  check_packed(check, head_dim, grad_out, slots.subspan(6, 2), packed_grad);
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
  for (int64_t head_dim : {30, 64, 128, 250}) {
    for (float magnitude : {1e-12f, 1.0f, 1e12f}) {
      cases.push_back({"attention_pack", fmt::format("head_dim {}, to {}", head_dim, magnitude),
                       [=](Context& on) { return run_pack_case(on, head_dim, magnitude); }});
    }
  }
}

}  // namespace wgrad::ops
