#include "ops/pack_source.h"

#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "gpu/kernel_text.h"
#include "ops/f16_blocks.h"
#include "ops/launch.h"
#include "ops/wgsl_writer.h"

namespace wgrad::ops {

namespace {

constexpr std::string_view kLoadVectors = R"(
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
fn load4(row: u32, quad: u32) -> vec4<f32> {
  if (quad * 4u >= p.columns) { return vec4<f32>(); }
  return x[(p.x_offset + row * p.ld) / 4u + quad];
}
)";

constexpr std::string_view kLoadElements = R"(
@group(0) @binding(0) var<storage, read> x: array<f32>;
fn load4(row: u32, quad: u32) -> vec4<f32> {
  var v = vec4<f32>();
  for (var j = 0u; j < 4u; j++) {
    if (quad * 4u + j < p.columns) { v[j] = x[p.x_offset + row * p.ld + quad * 4u + j]; }
  }
  return v;
}
)";

std::string common(bool vectors) {
  std::string text(gpu::kernel_source("lib_powers"));
  text += gpu::kernel_source("lib_f16_blocks");
  text += gpu::kernel_source("lib_pack_f16");
  return text += vectors ? kLoadVectors : kLoadElements;
}

/// A row's elements in an invocation's registers, every step written out.
std::string held_text(const PackShape& shape) {
  WgslWriter w;
  w.line("const LANES: u32 = {}u;", shape.lanes);
  w.line("const SIDE: u32 = {}u;", std::lround(std::sqrt(static_cast<double>(shape.lanes))));
  w.line("struct Held {{");
  for (int64_t i = 0; i < shape.units; ++i) w.line("  a{0}: vec4<f32>, b{0}: vec4<f32>,", i);
  w.line("}}");
  w.line("fn load_held(row: u32, lane: u32) -> Held {{");
  w.line("  var h: Held;");
  for (int64_t i = 0; i < shape.units; ++i) {
    w.line("  h.a{0} = load4(row, (lane + {1}u) * 2u);", i, i * shape.lanes);
    w.line("  h.b{0} = load4(row, (lane + {1}u) * 2u + 1u);", i, i * shape.lanes);
  }
  w.line("  return h;");
  w.line("}}");
  w.line("fn largest_held(h: Held) -> u32 {{");
  w.line("  var bits = vec4<u32>();");
  for (int64_t i = 0; i < shape.units; ++i) {
    w.line("  bits = max(bits, max(magnitude_bits(h.a{0}), magnitude_bits(h.b{0})));", i);
  }
  w.line("  return max(max(bits.x, bits.y), max(bits.z, bits.w));");
  w.line("}}");
  w.line("fn store_held(h: Held, row_block: u32, slot: u32, lane: u32, power: f32) {{");
  for (int64_t i = 0; i < shape.units; ++i) {
    w.line("  if (lane + {}u < p.column_blocks * 2u) {{", i * shape.lanes);
    w.line("    store_unit(row_block, slot, lane + {1}u, h.a{0} * power, h.b{0} * power);", i,
           i * shape.lanes);
    w.line("  }}");
  }
  w.line("}}");
  return w.take();
}

}  // namespace

PackShape pack_shape(int64_t columns) {
  constexpr int64_t kHeldUnits = 8;  // 64 values an invocation
  const int64_t units = f16_padded(columns) / 8;
  // Short rows share a workgroup; each of its 16 rows at the most is a step of a block.
  for (const auto& [lanes, held] :
       {std::pair<int64_t, int64_t>{16, kHeldUnits / 2}, {64, kHeldUnits / 2}, {256, kHeldUnits}}) {
    if (units <= lanes * held) return {lanes, ceil_div(units, lanes)};
  }
  return {};
}

const gpu::KernelSpec& pack_rows_kernel(const PackShape& shape, bool vectors) {
  static std::mutex mutex;
  static std::map<std::pair<PackShape, bool>, gpu::KernelSpec> specs;
  const std::lock_guard lock(mutex);
  const auto [it, added] = specs.try_emplace({shape, vectors});
  if (added) {
    it->second.source = it->second.entry_point = "pack_rows";
    it->second.permanent = true;
    it->second.prelude = common(vectors) + held_text(shape);
  }
  return it->second;
}

const gpu::KernelSpec& pack_kernel(PackStep step, bool vectors) {
  constexpr std::array<std::string_view, 3> kEntryPoints = {"row_powers", "pack_powers",
                                                            "pack_scaled"};
  static const auto specs = [&] {
    std::array<std::array<gpu::KernelSpec, 2>, kEntryPoints.size()> all;
    for (size_t i = 0; i < all.size(); ++i) {
      for (const bool by_vectors : {false, true}) {
        all[i][by_vectors ? 1 : 0] = {"pack_f16", kEntryPoints[i], common(by_vectors), {}, {},
                                      true};
      }
    }
    return all;
  }();
  return specs[static_cast<size_t>(step)][vectors ? 1 : 0];
}

}  // namespace wgrad::ops
