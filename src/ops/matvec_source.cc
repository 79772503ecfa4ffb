#include "ops/matvec_source.h"

#include <map>
#include <mutex>
#include <string>

#include "ops/nf4_source.h"
#include "ops/wgsl_writer.h"

namespace wgrad::ops {

namespace {

void declare(WgslWriter& w, const MatvecKernel& kernel) {
  w.line("const kRows = {}u;", kernel.rows);
  w.line("const kGroupRows = {}u;", kernel.group_rows());
  w.line(
      "struct Params {{ n: u32, units: u32, ldx: u32, ldy: u32, x_offset: u32, y_offset: u32, "
      "bias_offset: u32, w_offset: u32, w_stride: u32, origin: u32, accumulate: u32, "
      "has_bias: u32, alpha: f32, absmax_offset: f32 }}");
  w.line("@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;");
  w.line("@group(0) @binding(1) var<storage, read> bias: array<f32>;");
  w.line("@group(0) @binding(2) var<storage, read_write> y: array<f32>;");
  w.line("@group(0) @binding({}) var<uniform> p: Params;",
         kernel.weight == MatvecWeight::kNF4 ? 6 : 4);
}

// A row for 32 invocations, whose neighbours read neighbouring units.
void place_by_rows(WgslWriter& w) {
  w.line("const kUnitStep = 32u;");
  w.line("fn local_row(t: u32) -> u32 {{ return t / 32u; }}");
  w.line("fn first_unit(t: u32) -> u32 {{ return t % 32u; }}");
  w.line("fn invocation(row: u32, part: u32) -> u32 {{ return row * 32u + part; }}");
}

// A 16x16 block for 32 invocations, in the order of its units.
void place_by_blocks(WgslWriter& w) {
  w.line("const kUnitStep = 16u;");
  w.line(
      "fn local_row(t: u32) -> u32 {{ return ((t >> 1u) & 3u) * 2u + ((t >> 3u) & 1u) + "
      "((t >> 4u) & 1u) * 8u; }}");
  w.line("fn first_unit(t: u32) -> u32 {{ return t / 32u * 2u + (t & 1u); }}");
  w.line(
      "fn unit_of(row: u32, half: u32) -> u32 {{ return half | (((row >> 1u) & 3u) << 1u) | "
      "((row & 1u) << 3u) | (((row >> 3u) & 1u) << 4u); }}");
  w.line(
      "fn invocation(row: u32, part: u32) -> u32 {{ return part / 2u * 32u + "
      "unit_of(row, part & 1u); }}");
}

void widen_halves(WgslWriter& w) {
  w.line(
      "fn widen(h: vec4<u32>) -> mat2x4<f32> {{ return mat2x4<f32>("
      "vec4<f32>(unpack2x16float(h.x), unpack2x16float(h.y)), "
      "vec4<f32>(unpack2x16float(h.z), unpack2x16float(h.w))); }}");
}

std::string prelude(const MatvecKernel& kernel) {
  WgslWriter w;
  declare(w, kernel);
  if (kernel.weight == MatvecWeight::kF16Blocks) {
    place_by_blocks(w);
  } else {
    place_by_rows(w);
  }
  switch (kernel.weight) {
    case MatvecWeight::kF32:
      w.line("@group(0) @binding(3) var<storage, read> w: array<vec4<f32>>;");
      w.line("fn prepare(t: u32) {{}}");
      w.line(
          "fn weight8(row: u32, unit: u32) -> mat2x4<f32> {{ let i = (p.w_offset + row * "
          "p.w_stride + unit) * 2u; return mat2x4<f32>(w[i], w[i + 1u]); }}");
      break;
    case MatvecWeight::kF16:
      w.line("@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;");
      w.line("fn prepare(t: u32) {{}}");
      widen_halves(w);
      w.line(
          "fn weight8(row: u32, unit: u32) -> mat2x4<f32> {{ return widen(w[p.w_offset + row * "
          "p.w_stride + unit]); }}");
      break;
    case MatvecWeight::kF16Blocks:
      w.line("@group(0) @binding(3) var<storage, read> w: array<vec4<u32>>;");
      w.line("fn prepare(t: u32) {{}}");
      widen_halves(w);
      w.line(
          "fn weight8(row: u32, unit: u32) -> mat2x4<f32> {{ "
          "let block = (row / 32u * p.w_stride + unit / 2u) * 2u + row / 16u % 2u; "
          "return widen(w[p.w_offset + block * 32u + unit_of(row % 16u, unit & 1u)]); }}");
      break;
    case MatvecWeight::kNF4:
      w.line("@group(0) @binding(3) var<storage, read> codes: array<u32>;");
      w.line("@group(0) @binding(4) var<storage, read> absmax_codes: array<u32>;");
      w.line("@group(0) @binding(5) var<storage, read> absmax_scales: array<f32>;");
      write_nf4_functions(w);
      w.line("fn prepare(t: u32) {{ nf4_prepare(t); }}");
      w.line(
          "fn weight8(row: u32, unit: u32) -> mat2x4<f32> {{ "
          "let i = p.w_offset + row * p.w_stride + unit; "
          "return nf4_decode8(codes[i], nf4_absmax((p.origin / 8u + i) / 8u, "
          "p.absmax_offset)); }}");
      break;
  }
  return w.take();
}

}  // namespace

const gpu::KernelSpec& matvec_kernel_spec(const MatvecKernel& kernel) {
  static std::mutex mutex;
  static std::map<MatvecKernel, gpu::KernelSpec> specs;
  const std::lock_guard lock(mutex);
  auto [it, added] = specs.try_emplace(kernel);
  if (added) {
    it->second.permanent = true;
    it->second.source = "matvec";
    it->second.entry_point = "matvec";
    it->second.prelude = prelude(kernel);
  }
  return it->second;
}

}  // namespace wgrad::ops
