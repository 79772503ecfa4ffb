#include "ops/lora_source.h"

#include <map>
#include <mutex>
#include <string>

#include "ops/wgsl_writer.h"

namespace wgrad::ops {

namespace {

constexpr int64_t kInvocations = 256, kProjectRows = 8;
constexpr const char* kNames[] = {"lora_project", "lora_expand", "lora_gradient", "lora_sum"};

constexpr const char* kParams = "m: u32, width: u32, rows_per_group: u32, parts: u32, alpha: f32";
constexpr const char* kSumParams =
    "width_b: u32, width_a: u32, parts_b: u32, parts_a: u32, begin_a: u32, alpha: f32";

void bindings(WgslWriter& w, const char* params, std::initializer_list<const char*> reads,
              std::initializer_list<const char*> writes) {
  w.line("struct Params {{ {} }}", params);
  int binding = 0;
  for (const char* name : reads) {
    w.line("@group(0) @binding({}) var<storage, read> {}: array<vec4<f32>>;", binding++, name);
  }
  for (const char* name : writes) {
    w.line("@group(0) @binding({}) var<storage, read_write> {}: array<vec4<f32>>;", binding++,
           name);
  }
  w.line("@group(0) @binding({}) var<uniform> p: Params;", binding);
}

void head(WgslWriter& w) {
  w.line("@compute @workgroup_size({})", kInvocations);
  w.line("fn main(@builtin(workgroup_id) wg: vec3<u32>,");
  w.line("        @builtin(num_workgroups) grid: vec3<u32>,");
  w.line("        @builtin(local_invocation_index) t: u32) {{");
  w.line("  let id = wg.x + wg.y * grid.x;");
}

/// Invocation t = (subgroup, lane) takes 4 of the small matrix's columns (lane % quads) and every
/// so-manyth 4 of the reduction, for 8 rows; the partial sums meet in workgroup memory, 4 rows at a
/// time.
void project(WgslWriter& w, const LoraKernel& kernel) {
  const int64_t quads = kernel.rank / 4, along = 32 / quads;
  const int64_t rows = kernel.row_groups, cuts = 8 / rows * along, slices = cuts / 4;
  bindings(w, kParams, {"wide", "factor"}, {"small"});
  w.line("var<workgroup> sums: array<vec4<f32>, {}>;", 4 * kInvocations);
  head(w);
  w.line("  let first = id * {}u;", kernel.project_rows());
  w.line("  if (first >= p.m) {{ return; }}");
  w.line("  let sg = t / 32u; let c = t % {}u; let place = t % 32u / {}u;", quads, quads);
  w.line("  let row = first + sg % {}u * {}u;", rows, kProjectRows);
  for (int64_t i = 0; i < kProjectRows; ++i) {
    w.line("  let x{0} = min(row + {0}u, p.m - 1u) * p.width; var s{0} = vec4<f32>();", i);
  }
  w.line("  for (var q = sg / {}u * {}u + place; q < p.width; q += {}u) {{", rows, along, cuts);
  for (int64_t j = 0; j < 4; ++j) {
    if (kernel.transposed) {
      w.line("    let f{0} = factor[(q * 4u + {0}u) * {1}u + c];", j, quads);
    } else {
      w.line("    let f{0} = factor[(c * 4u + {0}u) * p.width + q];", j);
    }
  }
  for (int64_t i = 0; i < kProjectRows; ++i) w.line("    let v{0} = wide[x{0} + q];", i);
  for (int64_t i = 0; i < kProjectRows; ++i) {
    if (kernel.transposed) {
      w.line("    s{0} += v{0}.x * f0 + v{0}.y * f1 + v{0}.z * f2 + v{0}.w * f3;", i);
    } else {
      w.line("    s{0} += vec4<f32>(dot(v{0}, f0), dot(v{0}, f1), dot(v{0}, f2), dot(v{0}, f3));",
             i);
    }
  }
  w.line("  }}");
  w.line("  let output = t / {}u; let slice = t % {}u;", slices, slices);
  w.line("  let output_sg = output / {}u % {}u; let output_row = output / {}u;", quads, rows,
         quads * rows);
  for (int64_t half = 0; half < 2; ++half) {
    if (half > 0) w.line("  workgroupBarrier();");
    for (int64_t i = 0; i < 4; ++i) {
      w.line("  sums[{}u + t] = s{};", i * kInvocations, 4 * half + i);
    }
    w.line("  workgroupBarrier();");
    w.line("  {{");
    w.line("    var sum = vec4<f32>();");
    w.line("    for (var j = 0u; j < 4u; j++) {{");
    w.line("      let cut = slice + j * {}u;", slices);
    w.line(
        "      sum += sums[output_row * {}u + (cut / {}u * {}u + output_sg) * 32u + cut % {}u * "
        "{}u + output % {}u];",
        kInvocations, along, rows, along, quads, quads);
    w.line("    }}");
    w.line("    workgroupBarrier();");
    w.line("    sums[t] = sum;");
    w.line("  }}");
    w.line("  workgroupBarrier();");
    w.line("  if (t < {}u) {{", kInvocations / slices);
    w.line("    let at = first + t / {}u % {}u * {}u + t / {}u + {}u;", quads, rows, kProjectRows,
           quads * rows, 4 * half);
    w.line("    var sum = vec4<f32>();");
    w.line("    for (var j = 0u; j < {0}u; j++) {{ sum += sums[t * {0}u + j]; }}", slices);
    w.line("    if (at < p.m) {{ small[at * {}u + t % {}u] = sum * p.alpha; }}", quads, quads);
    w.line("  }}");
  }
  w.line("}}");
}

/// An invocation holds the factor's part for 4 columns and takes every fourth row of its group's.
void expand(WgslWriter& w, const LoraKernel& kernel) {
  const int64_t quads = kernel.rank / 4;
  bindings(w, kParams, {"small", "factor"}, {"wide"});
  head(w);
  w.line("  let groups = (p.width + 63u) / 64u;");
  w.line("  let q = id % groups * 64u + t % 64u;");
  w.line("  let first = id / groups * p.rows_per_group;");
  w.line("  if (q >= p.width) {{ return; }}");
  for (int64_t i = 0; i < kernel.rank; ++i) {
    if (kernel.transposed) {
      w.line("  let f{} = factor[(q * 4u + {}u) * {}u + {}u];", i, i / quads, quads, i % quads);
    } else {
      w.line("  let f{0} = factor[{0}u * p.width + q];", i);
    }
  }
  w.line("  let end = min(first + p.rows_per_group, p.m);");
  w.line("  for (var row = first + t / 64u; row < end; row += {}u) {{", 4 * kernel.rows_at_once);
  for (int64_t u = 0; u < kernel.rows_at_once; ++u) {
    w.line("    let r{0} = min(row + {1}u, p.m - 1u); let y{0} = wide[r{0} * p.width + q];", u,
           4 * u);
  }
  for (int64_t u = 0; u < kernel.rows_at_once; ++u) {
    w.line("    var s{} = vec4<f32>();", u);
    for (int64_t c = 0; c < quads; ++c) {
      w.line("    {{ let x = small[r{} * {}u + {}u];", u, quads, c);
      if (kernel.transposed) {
        w.line("      s{} += vec4<f32>(dot(x, f{}), dot(x, f{}), dot(x, f{}), dot(x, f{})); }}", u,
               c, quads + c, 2 * quads + c, 3 * quads + c);
      } else {
        w.line("      s{} += x.x * f{} + x.y * f{} + x.z * f{} + x.w * f{}; }}", u, 4 * c,
               4 * c + 1, 4 * c + 2, 4 * c + 3);
      }
    }
  }
  for (int64_t u = 0; u < kernel.rows_at_once; ++u) {
    w.line("    if (row + {1}u < end) {{ wide[r{0} * p.width + q] = y{0} + p.alpha * s{0}; }}", u,
           4 * u);
  }
  w.line("  }}");
  w.line("}}");
}

/// An invocation sums 4 columns by all of the rank over every fourth row of its group's part; the
/// four meet in workgroup memory, 4 of the rank at a time.
void gradient(WgslWriter& w, const LoraKernel& kernel) {
  const int64_t quads = kernel.rank / 4;
  bindings(w, kParams, {"wide", "small"}, {"parts"});
  w.line("var<workgroup> sums: array<vec4<f32>, {}>;", 4 * kInvocations);
  head(w);
  w.line("  let groups = (p.width + 63u) / 64u;");
  w.line("  let part = id / groups;");
  w.line("  if (part >= p.parts) {{ return; }}");
  w.line("  let q = id % groups * 64u + t % 64u;");
  w.line("  let at = min(q, p.width - 1u);");
  w.line("  let first = part * p.rows_per_group;");
  w.line("  let end = min(first + p.rows_per_group, p.m);");
  for (int64_t i = 0; i < kernel.rank; ++i) w.line("  var s{} = vec4<f32>();", i);
  w.line("  for (var row = first + t / 64u; row < end; row += {}u) {{", 4 * kernel.rows_at_once);
  for (int64_t u = 0; u < kernel.rows_at_once; ++u) {
    w.line("    let r{0} = min(row + {1}u, p.m - 1u);", u, 4 * u);
    w.line("    let v{0} = select(vec4<f32>(), wide[r{0} * p.width + at], row + {1}u < end);", u,
           4 * u);
  }
  for (int64_t u = 0; u < kernel.rows_at_once; ++u) {
    for (int64_t c = 0; c < quads; ++c) {
      w.line("    {{ let x = small[r{} * {}u + {}u];", u, quads, c);
      for (int64_t j = 0; j < 4; ++j) {
        w.line("      s{} += v{} * x[{}];{}", 4 * c + j, u, j, j == 3 ? " }" : "");
      }
    }
  }
  w.line("  }}");
  for (int64_t c = 0; c < quads; ++c) {
    w.line("  workgroupBarrier();");
    for (int64_t j = 0; j < 4; ++j) {
      w.line("  sums[{}u + t] = s{};", j * kInvocations, 4 * c + j);
    }
    w.line("  workgroupBarrier();");
    w.line("  {{ let lane = t / 64u * {}u + t % 64u;", kInvocations);
    w.line("    let sum = sums[lane] + sums[lane + 64u] + sums[lane + 128u] + sums[lane + 192u];");
    w.line("    if (q < p.width) {{ parts[(part * {}u + {}u + t / 64u) * p.width + q] = sum; }} }}",
           kernel.rank, 4 * c);
  }
  w.line("}}");
}

void sum(WgslWriter& w, const LoraKernel& kernel) {
  bindings(w, kSumParams, {"parts"}, {"grad_b", "grad_a"});
  w.line("fn total(first: u32, count: u32, parts_count: u32) -> vec4<f32> {{");
  w.line("  var sum = vec4<f32>();");
  w.line("  for (var i = 0u; i < parts_count; i++) {{ sum += parts[first + i * count]; }}");
  w.line("  return sum;");
  w.line("}}");
  head(w);
  w.line("  let count_b = p.width_b * {}u; let count_a = p.width_a * {}u;", kernel.rank,
         kernel.rank);
  w.line("  let at = id * {}u + t;", kInvocations);
  w.line("  if (at < count_b) {{");
  w.line("    // four of a row of grad_b: the same column of four rows of the parts");
  w.line("    let row = at / {0}u; let c = at % {0}u;", kernel.rank / 4);
  w.line("    var v = vec4<f32>();");
  w.line("    for (var j = 0u; j < 4u; j++) {{");
  w.line("      let element = (c * 4u + j) * p.width_b + row / 4u;");
  w.line("      v[j] = total(element, count_b, p.parts_b)[row % 4u];");
  w.line("    }}");
  w.line("    grad_b[at] += p.alpha * v;");
  w.line("  }} else if (at - count_b < count_a) {{");
  w.line("    let element = at - count_b;");
  w.line("    grad_a[element] += total(p.begin_a + element, count_a, p.parts_a);");
  w.line("  }}");
  w.line("}}");
}

}  // namespace

const gpu::KernelSpec& lora_kernel(const LoraKernel& kernel) {
  static std::mutex mutex;
  static std::map<LoraKernel, gpu::KernelSpec> specs;
  const std::lock_guard lock(mutex);
  const auto [it, added] = specs.try_emplace(kernel);
  if (!added) return it->second;
  WgslWriter w;
  switch (kernel.step) {
    case LoraStep::kProject:
      project(w, kernel);
      break;
    case LoraStep::kExpand:
      expand(w, kernel);
      break;
    case LoraStep::kGradient:
      gradient(w, kernel);
      break;
    case LoraStep::kSum:
      sum(w, kernel);
      break;
  }
  it->second.permanent = true;
  it->second.source = kNames[static_cast<size_t>(kernel.step)];
  it->second.entry_point = "main";
  it->second.generated_text = w.take();
  return it->second;
}

}  // namespace wgrad::ops
