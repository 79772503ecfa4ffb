#include <fmt/format.h>

#include <cmath>

#include "cpu/rope.h"
#include "ops/rope.h"
#include "ops/verify_families.h"

namespace wgrad::ops {
namespace {

struct RopeCase {
  int64_t tokens, heads, head_dim, rotary_dim;
  RopePairing pairing;
  bool inverse;
};

/// Positions spread over [0, last], the last one included: the table is exact to f32 there.
VerifyResult rope_case(Context& ctx, const std::string& what, RopeCase c, uint32_t last) {
  VerifyCheck check("rope_apply", what, "core");
  const size_t n = static_cast<size_t>(c.tokens * c.heads * c.head_dim);
  const std::vector<float> values = verify_decades(n, 3);
  std::vector<uint32_t> positions(static_cast<size_t>(c.tokens));
  for (size_t t = 0; t < positions.size(); ++t) {
    positions[t] = last - static_cast<uint32_t>(t * 7919 % (static_cast<size_t>(last) + 1));
  }
  const std::vector<double> frequencies = cpu::rope_inv_freq(500000.0, c.rotary_dim);
  const std::vector<float> table = cpu::rope_table<float>(frequencies, last + 1);
  const std::vector<double> exact = cpu::rope_table<double>(frequencies, last + 1);
  std::vector<double> expected = to_double(values);
  const cpu::RopePairing pairing = c.pairing == RopePairing::kHalfSplit
                                       ? cpu::RopePairing::kHalfSplit
                                       : cpu::RopePairing::kInterleaved;
  cpu::rope_apply(expected.data(), expected.data(), positions.data(), exact.data(), c.tokens,
                  c.heads, c.head_dim, c.rotary_dim, pairing, c.inverse);

  const Tensor x = ctx.make<float>({c.tokens, c.heads * c.head_dim}, DType::kF32, values, "verify");
  const Tensor p = ctx.make<uint32_t>({c.tokens}, DType::kU32, positions, "verify");
  const Tensor t = ctx.make<float>({static_cast<int64_t>(last) + 1, c.rotary_dim / 2, 2},
                                   DType::kF32, table, "verify");
  rope_apply(ctx, x, p, t, c.head_dim, c.rotary_dim, c.pairing, c.inverse);
  // |x0| and |x1| turn into each other: the table's rounding, a product's, the sum's.
  const size_t head_dim = static_cast<size_t>(c.head_dim),
               half = static_cast<size_t>(c.rotary_dim) / 2;
  check.compare("x", ctx.read<float>(x), expected, [&](size_t i) {
    const size_t e = i % head_dim;
    if (e >= 2 * half) return 0.0;
    const size_t other =
        c.pairing == RopePairing::kHalfSplit ? (e < half ? i + half : i - half) : (i ^ 1);
    return 3.0 * kF32Rounding *
           (std::abs(static_cast<double>(values[i])) +
            std::abs(static_cast<double>(values[other])));
  });
  return check.result();
}

}  // namespace

void add_rope_cases(const Context&, VerifyLevel level, std::vector<VerifyCase>& cases) {
  std::vector<std::pair<RopeCase, uint32_t>> shapes = {
      {{1, 1, 2, 2, RopePairing::kHalfSplit, false}, 0},
      {{31, 3, 64, 64, RopePairing::kHalfSplit, false}, 4095},
      {{31, 3, 64, 64, RopePairing::kHalfSplit, true}, 4095},
      {{33, 2, 80, 20, RopePairing::kHalfSplit, false}, 1000},
      {{9, 8, 64, 32, RopePairing::kHalfSplit, false}, 1000},
      {{33, 6, 80, 24, RopePairing::kInterleaved, true}, 1000},
      {{17, 5, 6, 4, RopePairing::kInterleaved, true}, 131072},
      {{257, 2, 16, 16, RopePairing::kInterleaved, false}, 131072},
  };
  if (level == VerifyLevel::kFull) {
    shapes.push_back({{100, 32, 128, 128, RopePairing::kHalfSplit, false}, 131072});
    shapes.push_back({{70001, 2, 64, 64, RopePairing::kHalfSplit, true}, 8191});
  }
  for (const auto& [c, last] : shapes) {
    const std::string what =
        fmt::format("tokens {}, heads {}, head_dim {}, turned {}, {}{}, position {}", c.tokens,
                    c.heads, c.head_dim, c.rotary_dim,
                    c.pairing == RopePairing::kHalfSplit ? "half-split" : "interleaved",
                    c.inverse ? ", inverse" : "", last);
    cases.push_back({"rope_apply", what, [=, c = c, last = last](Context& ctx) {
                       return rope_case(ctx, what, c, last);
                     }});
  }
}

}  // namespace wgrad::ops
