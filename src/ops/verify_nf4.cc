#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cpu/nf4.h"
#include "ops/f16_blocks.h"
#include "ops/nf4.h"
#include "ops/verify_families.h"
#include "ops/verify_nf4.h"
#include "ops/verify_product.h"

namespace wgrad::ops {
namespace {

constexpr auto kBlock = static_cast<size_t>(cpu::kNf4Block);
constexpr auto kNestedBlock = static_cast<size_t>(cpu::kNf4NestedBlock);

template <class Values>
double widest_gap(const Values& table) {
  double widest = 0.0;
  for (size_t i = 1; i < table.size(); ++i) {
    widest = std::max(widest, static_cast<double>(table[i]) - static_cast<double>(table[i - 1]));
  }
  return widest;
}

Weight load(Context& ctx, int64_t out, int64_t in, std::span<const float> w) {
  return load_nf4_weight(ctx, "weight", out, in,
                         [&](int64_t begin, int64_t end, std::span<float> rows) {
                           std::copy(w.begin() + begin * in, w.begin() + end * in, rows.begin());
                         });
}

std::vector<uint8_t> codes_of(Context& ctx, const Weight& weight) {
  return ctx.read<uint8_t>(weight.data);
}

/// absmax of each block as given and, from the element that has it, as it is stored.
struct Absmax {
  std::vector<double> given, stored;

  Absmax(std::span<const float> w, std::span<const float> decoded) {
    for (size_t begin = 0; begin < w.size(); begin += kBlock) {
      size_t largest = begin;
      for (size_t i = begin; i < std::min(begin + kBlock, w.size()); ++i) {
        if (std::abs(w[i]) > std::abs(w[largest])) largest = i;
      }
      given.push_back(std::abs(static_cast<double>(w[largest])));
      stored.push_back(std::abs(static_cast<double>(decoded[largest])));
    }
  }
};

/// What quantising a weight may lose, and that quantising what came back loses nothing more.
VerifyResult round_trip(Context& ctx, const std::string& what, int64_t out, int64_t in) {
  VerifyCheck check("nf4_round_trip", what, ctx.modelled() == DeviceKind::kCpu ? "cpu" : "core");
  const std::vector<float> w = verify_uniform(static_cast<size_t>(out * in), 151, 0.05f);
  const Weight weight = load(ctx, out, in, w);
  const std::vector<float> decoded = ctx.read<float>(weight_to_f32(ctx, weight));
  check.require(codes_of(ctx, load(ctx, out, in, decoded)) == codes_of(ctx, weight),
                "the codes of decoded values are the codes that they came from");

  // An element lies within half a gap of its code; the code's factor is off by the block's absmax.
  const Absmax absmax(w, decoded);
  const double half_gap = 0.5 * widest_gap(cpu::kNf4Table);
  check.compare("w", decoded, to_double(w), [&](size_t i) {
    const double given = absmax.given[i / kBlock], stored = absmax.stored[i / kBlock];
    return half_gap * given + std::abs(stored - given) + 4 * kF32Rounding * given;
  });

  // Double quantisation: within half a gap of the dynamic map, times its block's largest.
  const double half_step = 0.5 * widest_gap(cpu::nf4_dynamic_map());
  const double offset = weight.absmax_offset;
  for (size_t begin = 0; begin < absmax.given.size(); begin += kNestedBlock) {
    const size_t end = std::min(begin + kNestedBlock, absmax.given.size());
    double largest = 0.0, error = 0.0;
    for (size_t i = begin; i < end; ++i) {
      largest = std::max(largest, std::abs(absmax.given[i] - offset));
      error = std::max(error, std::abs(absmax.stored[i] - absmax.given[i]));
    }
    const double allowed = half_step * largest + 4 * kF32Rounding * (largest + std::abs(offset));
    check.measure("absmax after double quantisation", error, allowed);
  }
  return check.result();
}

/// The 16 codes in every block decode to ascending values, the table's times absmax.
VerifyResult table_case(Context& ctx, const std::string& what) {
  VerifyCheck check("nf4_round_trip", what, ctx.modelled() == DeviceKind::kCpu ? "cpu" : "core");
  constexpr int64_t kRows = 5;
  std::vector<float> w(static_cast<size_t>(kRows) * kBlock);
  for (size_t i = 0; i < w.size(); ++i) {
    const auto block = static_cast<float>(i / kBlock);
    w[i] = cpu::kNf4Table[i % 16] * std::ldexp(1.0f + block / 8.0f, -3);
  }
  const Weight weight = load(ctx, kRows, cpu::kNf4Block, w);
  const std::vector<float> decoded = ctx.read<float>(weight_to_f32(ctx, weight));
  const Absmax absmax(w, decoded);
  std::vector<double> expected(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    expected[i] = absmax.stored[i / kBlock] * static_cast<double>(cpu::kNf4Table[i % 16]);
    check.require(i % 16 == 0 || decoded[i] > decoded[i - 1], "a higher code is a higher value");
  }
  check.compare("w", decoded, expected,
                [&](size_t i) { return 4 * kF32Rounding * absmax.stored[i / kBlock]; });
  return check.result();
}

VerifyResult dequantise_case(Context& ctx, const std::string& what, int64_t out, int64_t in) {
  const auto w = verify_uniform(static_cast<size_t>(in * out), 51);
  const auto seen = ctx.read<float>(weight_to_f32(ctx, load(ctx, out, in, w)));
  VerifyCheck check("nf4_dequantise", what, ctx.modelled() == DeviceKind::kCpu ? "cpu" : "core");
  check.compare("w", seen, to_double(through_nf4(w)), [](size_t) { return 1e-6; });
  return check.result();
}

/// f16 blocks of some rows: each half is its value over the weight's scale, rounded once.
VerifyResult blocks_case(Context& ctx, const std::string& what, int64_t out, int64_t in) {
  VerifyCheck check("nf4_dequantise_blocks", what, "core");
  const std::vector<float> w = verify_uniform(static_cast<size_t>(out * in), 152, 0.05f);
  const Weight weight = load(ctx, out, in, w);
  const std::vector<float> decoded = ctx.read<float>(weight_to_f32(ctx, weight));
  const int64_t first = out > kF16Panel ? kF16Panel : 0, rows = out - first;
  const Tensor blocks = ctx.allocate({f16_blocks_size(rows, in)}, DType::kF16, "verify");
  nf4_dequantise_blocks(ctx, weight, first, rows, blocks);
  const std::vector<uint16_t> halves = ctx.read<uint16_t>(blocks);
  std::vector<float> seen;
  std::vector<double> expected;
  for (int64_t row = 0; row < f16_padded(rows); ++row) {
    for (int64_t column = 0; column < f16_padded(in); ++column) {
      const auto at = static_cast<size_t>(f16_blocks_index(row, column, in));
      seen.push_back(static_cast<float>(half_value(halves[at])));
      const bool inside = row < rows && column < in;
      const auto from = static_cast<size_t>(inside ? (first + row) * in + column : 0);
      expected.push_back(inside ? static_cast<double>(decoded[from] / weight.scale) : 0.0);
    }
  }
  // Rounding may be towards zero, and what is below f16's normal numbers may become 0; decoding
  // rounds twice where the device fuses the absmax's product and sum.
  check.compare("halves", seen, expected, [&](size_t i) {
    const double magnitude = std::abs(expected[i]);
    return magnitude == 0.0 ? 0.0 : (0x1p-10 + 4 * kF32Rounding) * magnitude + 0x1p-14;
  });
  return check.result();
}

}  // namespace

std::vector<float> through_nf4(const std::vector<float>& w) {
  const auto n = static_cast<int64_t>(w.size());
  const int64_t blocks = cpu::nf4_blocks(n);
  std::vector<uint8_t> packed(static_cast<size_t>(cpu::nf4_packed_bytes(n)));
  std::vector<uint8_t> codes(static_cast<size_t>(blocks));
  std::vector<float> absmax(static_cast<size_t>(blocks)), out(w.size());
  std::vector<float> nested(static_cast<size_t>(cpu::nf4_nested_blocks(n)));
  cpu::quantise_nf4(w.data(), n, packed.data(), absmax.data());
  cpu::Nf4View view;
  view.offset = cpu::nf4_absmax_offset(absmax.data(), blocks);
  cpu::quantise_nf4_absmax(absmax.data(), blocks, view.offset, codes.data(), nested.data());
  view.packed = packed.data();
  view.absmax_codes = codes.data();
  view.nested_absmax = nested.data();
  cpu::dequantise_nf4(view, 0, n, out.data());
  return out;
}

void add_nf4_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases) {
  std::vector<std::pair<int64_t, int64_t>> shapes = {{1, 1}, {3, 33}, {65, 64}, {300, 96}};
  if (level == VerifyLevel::kFull) shapes.emplace_back(1031, 1000);
  for (const auto& [out, in] : shapes) {
    const std::string what = fmt::format("{} x {}", out, in);
    cases.push_back({"nf4_round_trip", what, [=, out = out, in = in](Context& ctx) {
                       return round_trip(ctx, what, out, in);
                     }});
  }
  cases.push_back({"nf4_round_trip", "table is monotone",
                   [](Context& c) { return table_case(c, "table is monotone"); }});
  for (const auto& [out, in] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 33}, {65, 64}, {40, 72}, {530, 31}}) {
    const std::string what = fmt::format("{} x {}", out, in);
    cases.push_back({"nf4_dequantise", what, [=, out = out, in = in](Context& c) {
                       return dequantise_case(c, what, out, in);
                     }});
  }
  if (ctx.modelled() != DeviceKind::kGpu) return;
  // Rows that begin within a block of absmax, rows of more than one workgroup, partial panels.
  for (const auto& [out, in] :
       {std::pair<int64_t, int64_t>{1, 8}, {33, 72}, {70, 1048}, {65, 128}}) {
    const std::string what = fmt::format("{} x {}", out, in);
    cases.push_back({"nf4_dequantise_blocks", what, [=, out = out, in = in](Context& c) {
                       return blocks_case(c, what, out, in);
                     }});
  }
}

}  // namespace wgrad::ops
