#include "ops/lora_matrix_source.h"

#include <string>

#include "gpu/kernel_text.h"
#include "ops/generated_kernels.h"
#include "ops/wgsl_writer.h"

namespace wgrad::ops {

namespace {

constexpr const char* kLeft = "subgroup_matrix_left<f16, 16, 16>";
constexpr const char* kRight = "subgroup_matrix_right<f16, 16, 16>";
constexpr const char* kResult = "subgroup_matrix_result<f32, 16, 16>";
constexpr int64_t kSubgroups = 8;

void head(WgslWriter& w, std::string_view bindings) {
  w.line("enable f16; enable subgroups; enable chromium_experimental_subgroup_matrix;");
  w.line("diagnostic(off, chromium.subgroup_matrix_uniformity);");
  w.line("{}", gpu::kernel_source("lib_powers"));
  w.line("{}", gpu::kernel_source("lib_f16_blocks"));
  w.line(
      "struct Params {{ m: u32, rank: u32, column_blocks: u32, rows_per_part: u32, parts: u32, "
      "factor_power: u32, alpha: f32, next_alpha: f32 }}");
  w.line("{}", bindings);
}

void entry(WgslWriter& w) {
  w.line("@compute @workgroup_size({})", 32 * kSubgroups);
  w.line("fn main(@builtin(workgroup_id) wg: vec3<u32>,");
  w.line("        @builtin(num_workgroups) grid: vec3<u32>,");
  w.line("        @builtin(local_invocation_index) t: u32) {{");
  w.line("  let id = wg.x + wg.y * grid.x;");
  w.line("  let sg = t / 32u;");
}

/// Blocks (panels) whose loads are under way together.
constexpr int64_t kBlocksAtOnce = 4, kPanelsAtOnce = 2;

/// The sums of so many blocks of columns, eight apart, from `block` on.
void project_blocks(WgslWriter& w, const LoraMatrixKernel& kernel, int64_t blocks) {
  const int64_t rank = kernel.padded_rank, pieces = rank / 16;
  for (int64_t u = 0; u < blocks; ++u) {
    w.line("    let b{0} = block + {1}u; let at{0} = (id * p.column_blocks + b{0}) * 64u;", u,
           kSubgroups * u);
    for (int64_t half = 0; half < 2; ++half) {
      w.line("    let a{0}_{1} = subgroupMatrixLoad<{2}, row_major>(&wide, at{0} + {3}u, 2u);", u,
             half, kLeft, 32 * half);
    }
  }
  for (int64_t u = 0; u < blocks; ++u) {
    for (int64_t q = 0; q < pieces; ++q) {
      if (kernel.factor_rows_are_wide) {
        w.line(
            "    let f{0}_{1} = subgroupMatrixLoad<{2}, row_major>(&factor, b{0} * {3}u + {4}u, "
            "{5}u);",
            u, q, kRight, 2 * rank, 2 * q, rank / 8);
      } else {
        w.line(
            "    let f{0}_{1} = subgroupMatrixLoad<{2}, col_major>(&factor, ({3}u * "
            "p.column_blocks + b{0}) * 2u, p.column_blocks * 2u);",
            u, q, kRight, 16 * q);
      }
    }
  }
  for (int64_t u = 0; u < blocks; ++u) {
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t q = 0; q < pieces; ++q) {
        w.line("    s{1}_{2} = subgroupMatrixMultiplyAccumulate(a{0}_{1}, f{0}_{2}, s{1}_{2});", u,
               half, q);
      }
    }
  }
}

/// Each subgroup multiplies every eighth block of 16 columns of a panel of 32 rows; their sums meet
/// in workgroup memory.
std::string project(const LoraMatrixKernel& kernel) {
  const int64_t rank = kernel.padded_rank, pieces = rank / 16;
  constexpr int64_t kSumRow = 5;  // units from one row of 16 sums to the next: no bank conflicts
  WgslWriter w;
  head(w, R"(
@group(0) @binding(0) var<storage, read> wide: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> wide_scales: array<f32>;
@group(0) @binding(2) var<storage, read> factor: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> powers: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> small: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> halves: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read_write> scales: array<f32>;
@group(0) @binding(7) var<uniform> p: Params;)");
  w.line("var<workgroup> sums: array<vec4<u32>, {}>;", kSubgroups * 32 * kSumRow);
  w.line("var<workgroup> rows: array<vec4<f32>, {}>;", 32 * rank / 4);
  w.line("var<workgroup> row_powers: array<f32, 32>;");
  entry(w);
  w.line("  if (id * {}u >= p.m) {{ return; }}", kLoraPanel);
  for (int64_t half = 0; half < 2; ++half) {
    for (int64_t q = 0; q < pieces; ++q) w.line("  var s{}_{} = {}();", half, q, kResult);
  }
  w.line("  var block = sg;");
  for (const int64_t blocks : {kBlocksAtOnce, int64_t{1}}) {
    w.line("  for (; block + {}u < p.column_blocks; block += {}u) {{", kSubgroups * (blocks - 1),
           kSubgroups * blocks);
    project_blocks(w, kernel, blocks);
    w.line("  }}");
  }
  w.line("  let slot = t / 4u % 32u; let quad = t % 4u;");
  w.line("  let local_row = slot / 16u * 16u + row_at(slot % 16u);");
  w.line("  let scale_row = min(id * 32u + local_row, p.m - 1u);");
  w.line("  let scale = wide_scales[scale_row];");
  w.line("  let inverse = powers[p.factor_power].y;");
  for (int64_t q = 0; q < pieces; ++q) {
    w.line("  workgroupBarrier();");
    for (int64_t half = 0; half < 2; ++half) {
      w.line("  subgroupMatrixStore<row_major>(&sums, sg * {}u + {}u, s{}_{}, {}u);", 32 * kSumRow,
             16 * kSumRow * half, half, q, kSumRow);
    }
    w.line("  workgroupBarrier();");
    w.line("  if (t < 128u) {{");
    w.line("    var sum = vec4<f32>();");
    w.line("    for (var i = 0u; i < {}u; i++) {{", kSubgroups);
    w.line("      sum += bitcast<vec4<f32>>(sums[i * {}u + slot * {}u + quad]);", 32 * kSumRow,
           kSumRow);
    w.line("    }}");
    w.line("    rows[local_row * {}u + {}u + quad] = sum * inverse * scale * p.alpha;", rank / 4,
           4 * q);
    w.line("  }}");
  }
  w.line("  workgroupBarrier();");
  w.line("  if (t < 32u) {{");
  w.line("    var bits = vec4<u32>();");
  w.line(
      "    for (var i = 0u; i < {0}u; i++) {{ bits = max(bits, magnitude_bits(rows[t * {0}u + "
      "i])); }}",
      rank / 4);
  w.line("    let row_inverse = inverse_power(largest_of(bits));");
  w.line("    row_powers[t] = inverse_of_power(row_inverse);");
  w.line("    if (id * 32u + t < p.m) {{");
  w.line(
      "      scales[id * 32u + t] = row_inverse * powers[1u - p.factor_power].y * p.next_alpha;");
  w.line("    }}");
  w.line("  }}");
  w.line("  workgroupBarrier();");
  w.line("  for (var i = t; i < {}u; i += 256u) {{", 32 * rank / 4);
  w.line("    let row = i / {0}u; let c = i % {0}u;", rank / 4);
  w.line("    var v = rows[i];");
  w.line("    if (id * 32u + row >= p.m) {{ v = vec4<f32>(); }}");
  w.line("    else if (c < p.rank / 4u) {{ small[(id * 32u + row) * (p.rank / 4u) + c] = v; }}");
  w.line("    v *= row_powers[row];");
  w.line("    halves[id * {}u + i] = vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw));",
         8 * rank);
  w.line("  }}");
  w.line("}}");
  return w.take();
}

/// Units from one staged row of the small matrix to the next: no bank conflicts.
int64_t staged_row(const LoraMatrixKernel& kernel) { return kernel.padded_rank / 8 + 1; }

/// The sums of so many panels of 32 rows from `panel` on.
void gradient_panels(WgslWriter& w, const LoraMatrixKernel& kernel, int64_t panels) {
  const int64_t pieces = kernel.padded_rank / 16, row_units = staged_row(kernel);
  for (int64_t u = 0; u < panels; ++u) {
    w.line("    let at{0} = ((first / 32u + panel + {0}u) * p.column_blocks + block) * 64u;", u);
    for (int64_t c = 0; c < 2; ++c) {
      for (int64_t half = 0; half < 2; ++half) {
        w.line(
            "    let a{0}_{1}_{2} = subgroupMatrixLoad<{3}, col_major>(&wide, at{0} + {4}u, 2u);",
            u, c, half, kLeft, 64 * c + 32 * half);
      }
    }
  }
  for (int64_t u = 0; u < panels; ++u) {
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t q = 0; q < pieces; ++q) {
        w.line(
            "    let f{0}_{1}_{2} = subgroupMatrixLoad<{3}, row_major>(&staged, ((panel + {0}u) * "
            "32u + {4}u) * {5}u + {6}u, {5}u);",
            u, half, q, kRight, 16 * half, row_units, 2 * q);
        for (int64_t c = 0; c < 2; ++c) {
          w.line(
              "    s{1}_{3} = subgroupMatrixMultiplyAccumulate(a{0}_{1}_{2}, f{0}_{2}_{3}, "
              "s{1}_{3});",
              u, c, half, q);
        }
      }
    }
  }
}

/// The part's rows of the small matrix lie in workgroup memory as f16, in the order of the blocks'
/// units; each subgroup then streams two blocks of 16 columns.
std::string gradient(const LoraMatrixKernel& kernel) {
  const int64_t rank = kernel.padded_rank, pieces = rank / 16;
  const int64_t row_units = staged_row(kernel), most_rows = lora_most_part_rows(rank);
  WgslWriter w;
  head(w, R"(
@group(0) @binding(0) var<storage, read> wide: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> wide_scales: array<f32>;
@group(0) @binding(2) var<storage, read> small: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> parts: array<f32>;
@group(0) @binding(4) var<storage, read_write> part_scales: array<f32>;
@group(0) @binding(5) var<uniform> p: Params;)");
  w.line("var<workgroup> staged: array<vec4<u32>, {}>;", most_rows * row_units);
  w.line("var<workgroup> largest: array<u32, 256>;");
  w.line("fn scaled(row: u32, quad: u32) -> vec4<f32> {{");
  w.line("  if (row >= p.m || quad * 4u >= p.rank) {{ return vec4<f32>(); }}");
  w.line("  return small[row * (p.rank / 4u) + quad] * wide_scales[row];");
  w.line("}}");
  entry(w);
  w.line("  let groups = (p.column_blocks + {0}u) / {1}u;", kLoraMatrixColumns / 16 - 1,
         kLoraMatrixColumns / 16);
  w.line("  let part = id / groups;");
  w.line("  if (part >= p.parts) {{ return; }}");
  w.line("  let first = part * p.rows_per_part;");
  w.line("  let panels = (min(p.rows_per_part, p.m - first) + 31u) / 32u;");
  w.line("  let quads = panels * {}u;", 8 * rank);
  w.line("  var bits = vec4<u32>();");
  w.line("  for (var i = t; i < quads; i += 256u) {{");
  w.line("    bits = max(bits, magnitude_bits(scaled(first + i / {0}u, i % {0}u)));", rank / 4);
  w.line("  }}");
  w.line("  largest[t] = largest_of(bits);");
  w.line("  workgroupBarrier();");
  w.line("  for (var step = 128u; step > 0u; step = step >> 1u) {{");
  w.line("    if (t < step) {{ largest[t] = max(largest[t], largest[t + step]); }}");
  w.line("    workgroupBarrier();");
  w.line("  }}");
  w.line("  let inverse = inverse_power(largest[0]);");
  w.line("  let power = inverse_of_power(inverse);");
  w.line("  if (t == 0u && id % groups == 0u) {{ part_scales[part] = inverse; }}");
  w.line("  for (var i = t; i < panels * {}u; i += 256u) {{", 4 * rank);
  w.line("    let slot = i / {0}u; let unit = i % {0}u;", rank / 8);
  w.line("    let row = first + slot / 16u * 16u + row_at(slot % 16u);");
  w.line("    let x = scaled(row, unit * 2u) * power;");
  w.line("    let y = scaled(row, unit * 2u + 1u) * power;");
  w.line("    staged[slot * {}u + unit] = to_halves(x, y);", row_units);
  w.line("  }}");
  w.line("  workgroupBarrier();");
  w.line("  let block = id % groups * {}u + sg * 2u;", kLoraMatrixColumns / 16);
  w.line("  if (block >= p.column_blocks) {{ return; }}");
  for (int64_t c = 0; c < 2; ++c) {
    for (int64_t q = 0; q < pieces; ++q) w.line("  var s{}_{} = {}();", c, q, kResult);
  }
  w.line("  var panel = 0u;");
  for (const int64_t count : {kPanelsAtOnce, int64_t{1}}) {
    w.line("  for (; panel + {}u < panels; panel += {}u) {{", count - 1, count);
    gradient_panels(w, kernel, count);
    w.line("  }}");
  }
  w.line("  let width = p.column_blocks * 16u;");
  w.line("  let base = part * width * {}u;", rank);
  for (int64_t c = 0; c < 2; ++c) {
    for (int64_t q = 0; q < pieces; ++q) {
      if (kernel.factor_rows_are_wide) {
        w.line(
            "  subgroupMatrixStore<row_major>(&parts, base + (block + {}u) * {}u + {}u, s{}_{}, "
            "{}u);",
            c, 16 * rank, 16 * q, c, q, rank);
      } else {
        w.line(
            "  subgroupMatrixStore<col_major>(&parts, base + {}u * width + (block + {}u) * 16u, "
            "s{}_{}, width);",
            16 * q, c, c, q);
      }
    }
  }
  w.line("}}");
  return w.take();
}

}  // namespace

const gpu::KernelSpec& lora_matrix_kernel(const LoraMatrixKernel& kernel) {
  const bool projects = kernel.step == LoraMatrixStep::kProject;
  return generated_kernel(kernel, projects ? "lora_matrix_project" : "lora_matrix_gradient",
                          projects ? project : gradient);
}

}  // namespace wgrad::ops
