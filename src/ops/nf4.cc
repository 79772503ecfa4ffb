#include "ops/nf4.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/nf4.h"
#include "ops/f16_blocks.h"
#include "ops/launch.h"
#include "ops/nf4_source.h"
#include "ops/window.h"

namespace wgrad::ops {

namespace {

/// Layout shared by the two kernels of nf4.wgsl.
struct Nf4Params {
  uint32_t units;   // of 8 elements, the last may be partial; blocks: per row
  uint32_t count;   // elements; blocks: rows
  uint32_t first;   // of the wanted elements, in units after the binding's start
  uint32_t origin;  // of the binding, in units
  uint32_t out_offset, column_blocks, column_groups, row_blocks;
  float absmax_offset, factor;
  uint32_t unused[2];
};
static_assert(sizeof(Nf4Params) == 48);

gpu::KernelSpec nf4_spec(std::string_view entry_point) {
  static const std::string prelude = [] {
    WgslWriter w;
    w.line("@group(0) @binding(0) var<storage, read> codes: array<u32>;");
    w.line("@group(0) @binding(1) var<storage, read> absmax_codes: array<u32>;");
    w.line("@group(0) @binding(2) var<storage, read> absmax_scales: array<f32>;");
    write_nf4_functions(w);
    return w.take();
  }();
  gpu::KernelSpec spec;
  spec.source = "nf4";
  spec.entry_point = entry_point;
  spec.prelude = prelude;
  return spec;
}

/// Words of eight codes.
int64_t nf4_words(int64_t n) { return ceil_div(n, 8); }

/// The power of two that brings magnitudes up to `largest` into [2^14, 2^15) by division.
float f16_divisor(float largest) {
  if (!(largest > 0.0f)) return 1.0f;
  return std::ldexp(1.0f, std::clamp(std::ilogb(largest), -112, 127) - 14);
}

}  // namespace

cpu::Nf4View nf4_view(const Weight& w) {
  cpu::Nf4View v;
  v.packed = w.data.data<uint8_t>();
  v.absmax_codes = w.absmax_codes.data<uint8_t>();
  v.dynamic_map = w.absmax_scales.data<float>();
  v.nested_absmax = v.dynamic_map + 256;
  v.offset = w.absmax_offset;
  return v;
}

void nf4_quantise(Context& ctx, const Tensor& x, const Tensor& packed, const Tensor& absmax) {
  expect_elements("nf4_quantise", "absmax", absmax, DType::kF32, cpu::nf4_blocks(x.size()));
  expect_elements("nf4_quantise", "packed", packed, DType::kU8, nf4_words(x.size()) * 4);
  if (ctx.kind() == DeviceKind::kCpu) {
    uint8_t* codes = packed.data<uint8_t>();
    std::fill(codes + cpu::nf4_packed_bytes(x.size()), codes + packed.size(), uint8_t{0});
    cpu::quantise_nf4(x.data<float>(), x.size(), codes, absmax.data<float>());
    return;
  }
  if (ctx.modelled() == DeviceKind::kCpu) return;
  struct Params {
    uint32_t count, x_offset, absmax_offset, codes_offset;
  };
  static const gpu::KernelSpec kSpec = [] {
    std::string bounds;
    for (float v : cpu::nf4_code_bounds()) bounds += fmt::format("{:.9g}f, ", v);
    gpu::KernelSpec spec{"nf4_quantise", "quantise", {}, {}, {}};
    spec.prelude = fmt::format("const kBounds = array<f32, 15>({});\n", bounds);
    return spec;
  }();
  // Parts of 512 elements are whole blocks and start at multiples of 256 bytes of the codes.
  constexpr int64_t kPart = 512;
  const int64_t step =
      kPart * rows_per_binding(ctx, "nf4_quantise", ceil_div(x.size(), kPart), kPart * 4, 1);
  for (int64_t first = 0; first < x.size(); first += step) {
    const int64_t count = std::min(x.size() - first, step);
    const Window from = window(x.flat(first, count));
    const Window to = window(packed.flat(first / 2, nf4_words(count) * 4));
    const Window scales = window(absmax.flat(first / cpu::kNf4Block, cpu::nf4_blocks(count)));
    const Params p{static_cast<uint32_t>(count), from.offset, scales.offset, to.offset / 4};
    launch(ctx, kSpec, {in(from.tensor), out(to.tensor), out(scales.tensor)}, p,
           invocations(nf4_words(count)));
  }
}

Weight load_nf4_weight(Context& ctx, std::string name, int64_t out_features, int64_t in_features,
                       const RowReader& read_rows) {
  Weight w;
  w.format = WeightFormat::kNF4;
  w.out_features = out_features;
  w.in_features = in_features;
  w.name = std::move(name);
  const int64_t n = out_features * in_features;
  const int64_t blocks = cpu::nf4_blocks(n), nested = cpu::nf4_nested_blocks(n);
  const std::string label = "weights/" + w.name;
  w.data = ctx.allocate({nf4_words(n) * 4}, DType::kU8, label);
  w.absmax_codes = ctx.allocate({ceil_div(blocks, 4) * 4}, DType::kU8, label);
  w.absmax_scales = ctx.allocate({256 + nested}, DType::kF32, label);

  // Groups of 512 rows are whole blocks of 64 and start at multiples of 256 packed bytes.
  constexpr int64_t kRows = 512;
  const Tensor staging =
      ctx.allocate({std::min(kRows, out_features), in_features}, DType::kF32, "scratch/load");
  const Tensor device_absmax = ctx.allocate({blocks}, DType::kF32, "scratch/absmax");
  std::vector<float> rows;
  for (int64_t begin = 0; begin < out_features; begin += kRows) {
    const int64_t end = std::min(out_features, begin + kRows), count = (end - begin) * in_features;
    const Tensor x = staging.rows(0, end - begin);
    if (ctx.kind() == DeviceKind::kCpu) {
      read_rows(begin, end, std::span(x.data<float>(), static_cast<size_t>(count)));
    } else if (ctx.kind() == DeviceKind::kGpu) {
      rows.resize(static_cast<size_t>(count));
      read_rows(begin, end, rows);
      ctx.upload(x, std::span<const float>(rows));
    }
    nf4_quantise(ctx, x, w.data.flat(begin * in_features / 2, nf4_words(count) * 4),
                 device_absmax.flat(begin * in_features / 64, cpu::nf4_blocks(count)));
  }
  if (ctx.kind() == DeviceKind::kPlan) return w;

  const std::vector<float> absmax = ctx.read<float>(device_absmax);
  std::vector<uint8_t> codes(static_cast<size_t>(w.absmax_codes.size()));
  std::vector<float> scales(cpu::nf4_dynamic_map().begin(), cpu::nf4_dynamic_map().end());
  scales.resize(static_cast<size_t>(256 + nested));
  w.absmax_offset = cpu::nf4_absmax_offset(absmax.data(), blocks);
  cpu::quantise_nf4_absmax(absmax.data(), blocks, w.absmax_offset, codes.data(),
                           scales.data() + 256);
  ctx.upload(w.absmax_codes, std::span<const uint8_t>(codes));
  ctx.upload(w.absmax_scales, std::span<const float>(scales));
  cpu::Nf4View restored;
  restored.absmax_codes = codes.data();
  restored.nested_absmax = scales.data() + 256;
  restored.offset = w.absmax_offset;
  float largest = 0.0f;
  for (int64_t b = 0; b < blocks; ++b) {
    largest = std::max(largest, std::abs(cpu::nf4_block_absmax(restored, b)));
  }
  w.scale = f16_divisor(largest);
  return w;
}

bool nf4_rows(Context& ctx, const Weight& weight, int64_t begin, int64_t end, Weight& part) {
  constexpr int64_t kGroup = cpu::kNf4Block * cpu::kNf4NestedBlock;
  const int64_t first = begin * weight.in_features, n = (end - begin) * weight.in_features;
  if (first % kGroup != 0) return false;
  part.data = weight.data.flat(first / 2, nf4_words(n) * 4);
  part.absmax_codes =
      weight.absmax_codes.flat(first / cpu::kNf4Block, ceil_div(cpu::nf4_blocks(n), 4) * 4);
  // The map stands before the scales, so these are a copy; they are few.
  const auto nested = static_cast<size_t>(cpu::nf4_nested_blocks(n));
  part.absmax_scales =
      ctx.allocate({static_cast<int64_t>(256 + nested)}, DType::kF32, "weights/" + weight.name);
  if (ctx.kind() == DeviceKind::kPlan) return true;
  std::vector<float> scales = ctx.read<float>(weight.absmax_scales);
  const auto from = scales.begin() + 256;
  std::copy_n(from + first / kGroup, nested, from);
  ctx.upload(part.absmax_scales, std::span<const float>(scales.data(), 256 + nested));
  return true;
}

Nf4Window nf4_window(const Weight& weight, int64_t row_begin, int64_t rows) {
  const int64_t first_byte = row_begin * weight.in_features / 2;
  const int64_t start = first_byte / 256 * 256;
  const int64_t end = cpu::nf4_packed_bytes((row_begin + rows) * weight.in_features);
  return {weight.data.flat(start, end - start), start * 2};
}

void nf4_dequantise_rows(Context& ctx, const Weight& weight, int64_t row_begin,
                         const Tensor& out_rows) {
  const int64_t count = out_rows.size(), first = row_begin * weight.in_features;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::dequantise_nf4(nf4_view(weight), first, count, out_rows.data<float>());
    return;
  }
  if (ctx.modelled() == DeviceKind::kCpu) return;
  const Nf4Window from = nf4_window(weight, row_begin, out_rows.dim(0));
  const Window to = window(out_rows);
  Nf4Params p{};
  p.count = static_cast<uint32_t>(count);
  p.first = static_cast<uint32_t>(first - from.origin);
  p.origin = static_cast<uint32_t>(from.origin / 8);
  // The first unit may begin before the first wanted element.
  p.units = static_cast<uint32_t>(ceil_div(p.first % 8 + count, 8));
  p.out_offset = to.offset;
  p.absmax_offset = weight.absmax_offset;
  launch(ctx, nf4_spec("dequantise"),
         {in(from.tensor), in(weight.absmax_codes), in(weight.absmax_scales), out(to.tensor)}, p,
         invocations(p.units));
}

void nf4_dequantise(Context& ctx, const Weight& weight, const Tensor& whole) {
  for_row_parts(ctx, "nf4_dequantise", weight.out_features, weight.in_features * 4,
                [&](int64_t begin, int64_t end) {
                  nf4_dequantise_rows(ctx, weight, begin, whole.rows(begin, end));
                });
}

void nf4_dequantise_blocks(Context& ctx, const Weight& weight, int64_t row_begin, int64_t rows,
                           const Tensor& blocks) {
  if (ctx.modelled() == DeviceKind::kCpu) return;
  const Nf4Window from = nf4_window(weight, row_begin, rows);
  Nf4Params p{};
  p.units = static_cast<uint32_t>(weight.in_features / 8);
  p.count = static_cast<uint32_t>(rows);
  p.first = static_cast<uint32_t>((row_begin * weight.in_features - from.origin) / 8);
  p.origin = static_cast<uint32_t>(from.origin / 8);
  p.column_blocks = static_cast<uint32_t>(f16_padded(weight.in_features) / 16);
  p.column_groups = static_cast<uint32_t>(ceil_div(p.column_blocks, 32));
  p.row_blocks = static_cast<uint32_t>(f16_padded(rows) / 16);
  p.absmax_offset = weight.absmax_offset;
  p.factor = 1.0f / weight.scale;
  launch(ctx, nf4_spec("dequantise_blocks"),
         {in(from.tensor), in(weight.absmax_codes), in(weight.absmax_scales),
          out(blocks.flat(0, f16_blocks_size(rows, weight.in_features)))},
         p, groups(int64_t{p.row_blocks} * p.column_groups));
}

}  // namespace wgrad::ops
