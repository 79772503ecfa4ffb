#include "ops/gemm_output.h"

#include <fmt/format.h>

namespace wgrad::ops {

void GemmOutput::declare_bindings(int memory_units) {
  w_.line("enable f16; enable subgroups; enable chromium_experimental_subgroup_matrix;");
  w_.line("diagnostic(off, chromium.subgroup_matrix_uniformity);");
  int binding = 0;
  w_.line("@group(0) @binding({}) var<storage, read> ga: array<vec4<u32>>;", binding++);
  w_.line("@group(0) @binding({}) var<storage, read> gb: array<vec4<u32>>;", binding++);
  w_.line("@group(0) @binding({}) var<storage, read> sa: array<f32>;", binding++);
  if (kernel_.b_scale != GemmKernel::ScaleB::kNone) {
    w_.line("@group(0) @binding({}) var<storage, read> sb: array<f32>;", binding++);
  }
  if (kernel_.bias) {
    w_.line("@group(0) @binding({}) var<storage, read> bias: array<f32>;", binding++);
  }
  if (kernel_.low_rank > 0) {
    w_.line("@group(0) @binding({}) var<storage, read> gs: array<vec4<u32>>;", binding++);
    w_.line("@group(0) @binding({}) var<storage, read> ss: array<f32>;", binding++);
    w_.line("@group(0) @binding({}) var<storage, read> gf: array<vec4<u32>>;", binding++);
  }
  w_.line("@group(0) @binding({}) var<storage, read_write> gc: array<{}>;", binding++,
          kernel_.store_vec4 ? "vec4<f32>" : "f32");
  w_.line(
      "struct Params {{ m: u32, n: u32, tiles_m: u32, tiles_n: u32, ldc: u32, c_offset: u32, "
      "bias_offset: u32, accumulate: u32, chunks: u32, a_blocks: u32, b_blocks: u32, factor: "
      "f32, a_offset: u32, b_offset: u32, b_scale_offset: u32, low_rank_rows: u32, "
      "low_rank_columns: u32, low_rank_row: u32, low_rank_column: u32, "
      "all_chunks: u32 }}");
  w_.line("@group(0) @binding({}) var<uniform> p: Params;", binding);
  w_.line("var<workgroup> sm: array<vec4<u32>, {}>;", memory_units);
  if (kernel_.parts) w_.line("var<private> part_begin: u32;");
}

std::string GemmOutput::four(const char* array, const char* at) const {
  return fmt::format("vec4<f32>({0}[{1}], {0}[{1} + 1u], {0}[{1} + 2u], {0}[{1} + 3u])", array, at);
}

// The exact powers of two come one after the other, the weight's first, so that no product of
// scales leaves f32's range where the result does not.
void GemmOutput::store_function() {
  using ScaleB = GemmKernel::ScaleB;
  const bool term = kernel_.low_rank > 0;
  w_.line("fn store(row: u32, col: u32, v: vec4<f32>{}) {{", term ? ", term: vec4<f32>" : "");
  w_.line("  if (row >= p.m || col >= p.n) {{ return; }}");
  w_.line("  let g = p.c_offset + row * p.ldc + col{};", kernel_.parts ? " + part_begin" : "");
  const char* scale_a = kernel_.a_scale_per_row ? "sa[row]" : "sa[0]";
  if (kernel_.store_vec4) {
    w_.line("  var r = v * p.factor;");
    if (kernel_.b_scale == ScaleB::kOne) w_.line("  r *= sb[0];");
    if (kernel_.b_scale == ScaleB::kPerColumn) {
      w_.line("  let s = p.b_scale_offset + col;");
      w_.line("  r *= {};", four("sb", "s"));
    }
    w_.line("  r *= {};", scale_a);
    if (term) w_.line("  r += term * ss[p.low_rank_row + row];");
    if (kernel_.bias) {
      w_.line("  let b = p.bias_offset + col;");
      w_.line("  r += {};", four("bias", "b"));
    }
    w_.line("  if (p.accumulate != 0u) {{ r += gc[g / 4u]; }}");
    w_.line("  gc[g / 4u] = r;");
  } else {
    w_.line("  for (var j = 0u; j < min(4u, p.n - col); j++) {{");
    w_.line("    var r = v[j] * p.factor;");
    if (kernel_.b_scale == ScaleB::kOne) w_.line("    r *= sb[0];");
    if (kernel_.b_scale == ScaleB::kPerColumn) {
      w_.line("    r *= sb[p.b_scale_offset + col + j];");
    }
    w_.line("    r *= {};", scale_a);
    if (term) w_.line("    r += term[j] * ss[p.low_rank_row + row];");
    if (kernel_.bias) w_.line("    r += bias[p.bias_offset + col + j];");
    w_.line("    if (p.accumulate != 0u) {{ r += gc[g + j]; }}");
    w_.line("    gc[g + j] = r;");
    w_.line("  }}");
  }
  w_.line("}}");
}

// The columns of the term's factor that belong to this subgroup.
void GemmOutput::load_term_factor() {
  const int64_t rank = kernel_.low_rank;
  w_.line("  let factor_last = (p.low_rank_columns - 1u) / 16u * 16u;");
  for (int j = 0; j < fragments_n_; ++j) {
    w_.line("  let fc{0} = min(p.low_rank_column + bn + wn + {1}u, factor_last);", j, j * 16);
    for (int q = 0; q < pieces(); ++q) {
      if (kernel_.op == MatmulOp::kNT) {
        w_.line(
            "  let f{0}_{1} = subgroupMatrixLoad<{2}, col_major>(&gf, fc{0} * {3}u + {4}u, "
            "{3}u);",
            j, q, kGemmRight, rank / 8, 2 * q);
      } else {
        w_.line(
            "  let f{0}_{1} = subgroupMatrixLoad<{2}, row_major>(&gf, ({3}u * p.low_rank_columns "
            "+ "
            "fc{0}) / 8u, p.low_rank_columns / 8u);",
            j, q, kGemmRight, 16 * q);
      }
    }
  }
}

void GemmOutput::multiply_term(int i) {
  const int64_t rank = kernel_.low_rank;
  w_.line("  {{ let sr = min(p.low_rank_row + bm + wm + {}u, (p.low_rank_rows - 1u) / 16u * 16u);",
          i * 16);
  for (int q = 0; q < pieces(); ++q) {
    w_.line("    let s{0} = subgroupMatrixLoad<{1}, row_major>(&gs, sr * {2}u + {3}u, {2}u);", q,
            kGemmLeft, rank / 8, 2 * q);
  }
  for (int j = 0; j < fragments_n_; ++j) {
    w_.line("    var d{} = {}();", j, kGemmResult);
    for (int q = 0; q < pieces(); ++q) {
      w_.line("    d{0} = subgroupMatrixMultiplyAccumulate(s{1}, f{0}_{1}, d{0});", j, q);
    }
    w_.line("    subgroupMatrixStore<row_major>(&sm, es + {}u, d{}, {}u);", j * 4, j,
            strip_stride_);
  }
  w_.line("  }}");
}

// A strip of 16 rows of each subgroup goes through workgroup memory, so that rows leave in
// 16-byte pieces, scaled and guarded. The term's strip follows it through the same memory.
void GemmOutput::store() {
  const int units = kernel_.wn / 4, steps = 16 * units / 32;
  const bool term = kernel_.low_rank > 0;
  w_.line("  let es = sg * {}u;", 16 * strip_stride_);
  if (term) load_term_factor();
  for (int q = 0; q < steps; ++q) {
    w_.line("  let r{0} = (lane + {1}u) / {2}u; let cc{0} = (lane + {1}u) % {2}u;", q, q * 32,
            units);
  }
  const auto place = [&](int q) {
    return fmt::format("sm[es + r{0} * {1}u + cc{0}]", q, strip_stride_);
  };
  for (int i = 0; i < fragments_m_; ++i) {
    w_.line("  workgroupBarrier();");
    for (int j = 0; j < fragments_n_; ++j) {
      w_.line("  subgroupMatrixStore<row_major>(&sm, es + {}u, c{}_{}, {}u);", j * 4, i, j,
              strip_stride_);
    }
    w_.line("  workgroupBarrier();");
    if (term) {
      for (int q = 0; q < steps; ++q) w_.line("  let v{}_{} = {};", i, q, place(q));
      w_.line("  workgroupBarrier();");
      multiply_term(i);
      w_.line("  workgroupBarrier();");
    }
    for (int q = 0; q < steps; ++q) {
      const std::string value = term ? fmt::format("v{}_{}", i, q) : place(q);
      w_.line("  store(bm + wm + {}u + r{}, bn + wn + cc{} * 4u, bitcast<vec4<f32>>({}){});",
              i * 16, q, q, value, term ? fmt::format(", bitcast<vec4<f32>>({})", place(q)) : "");
    }
  }
}

}  // namespace wgrad::ops
