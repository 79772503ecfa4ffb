#include "ops/matvec_source.h"

#include <string>

#include "gpu/kernel_text.h"
#include "ops/generated_kernels.h"
#include "ops/nf4_source.h"
#include "ops/wgsl_writer.h"

namespace wgrad::ops {

namespace {

class MatvecWriter {
 public:
  explicit MatvecWriter(const MatvecKernel& kernel) : k_(kernel) {}

  std::string write() {
    declare_bindings();
    if (k_.weight == MatvecWeight::kF16Blocks) {
      place_by_blocks();
    } else {
      place_by_rows();
    }
    declare_weight();
    if (k_.gated) {
      w_.line("{}{}", gpu::kernel_source("lib_vector1"), activation_text(k_.activation));
    }
    w_.line("var<workgroup> partial: array<f32, {}>;", k_.invocations * sums());
    w_.line("@compute @workgroup_size({})", k_.invocations);
    w_.line(
        "fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, "
        "@builtin(local_invocation_index) t: u32) {{");
    sum_parts();
    join_parts();
    w_.line("}}");
    return w_.take();
  }

 private:
  /// Sums that an invocation makes: a row and member that it works on each, and of squares.
  int sums() const { return products() + (k_.norm ? k_.rows : 0); }
  int products() const { return both() * k_.thread_rows * k_.rows; }
  int both() const { return k_.gated ? 2 : 1; }
  /// Numbers of a sum of products, and of the weight's rows that an invocation reads at once.
  int sum_of(int member, int thread_row, int row) const {
    return (member * k_.thread_rows + thread_row) * k_.rows + row;
  }
  void declare_bindings() {
    w_.line("const kGroupRows = {}u;", k_.group_rows());
    w_.line(
        "struct Member {{ n: u32, first_group: u32, w_offset: u32, w_stride: u32, x_offset: u32, "
        "y_offset: u32, bias_offset: u32, alpha: f32 }}");
    w_.line(
        "struct Params {{ members: array<Member, {}>, units: u32, ldx: u32, ldy: u32, "
        "accumulate: u32, groups: u32, origin: u32, norm_offset: u32, absmax_offset: f32, "
        "eps: f32, norm_add: f32, inverse_columns: f32, unused: u32 }}",
        kMatvecMembers);
    storage("read", "x: array<vec4<f32>>");
    if (k_.norm) storage("read", "norm: array<vec4<f32>>");
    for (int m = 0; k_.bias && m < k_.members; ++m) {
      storage("read", fmt::format("bias{}: array<f32>", m));
    }
    storage("read_write", "y: array<f32>");
    for (int m = 0; m < k_.members; ++m) {
      const char* cell = k_.weight == MatvecWeight::kF32   ? "vec4<f32>"
                         : k_.weight == MatvecWeight::kNF4 ? "u32"
                                                           : "vec4<u32>";
      storage("read", fmt::format("w{}: array<{}>", m, cell));
    }
    if (k_.weight == MatvecWeight::kNF4) {
      storage("read", "absmax_codes: array<u32>");
      storage("read", "absmax_scales: array<f32>");
    }
    w_.line("@group(0) @binding({}) var<uniform> p: Params;", bindings_);
  }

  void storage(const char* access, const std::string& text) {
    w_.line("@group(0) @binding({}) var<storage, {}> {};", bindings_++, access, text);
  }

  /// Rows that the invocations work on side by side, and the invocations of each.
  int rows_at_once() const { return k_.group_rows() / k_.thread_rows; }
  int row_parts() const { return k_.invocations / rows_at_once(); }

  // Neighbouring invocations read neighbouring units of a row.
  void place_by_rows() {
    w_.line("const kUnitStep = {}u;", row_parts());
    w_.line("fn local_row(t: u32) -> u32 {{ return t / kUnitStep; }}");
    w_.line("fn first_unit(t: u32) -> u32 {{ return t % kUnitStep; }}");
  }

  // A 16x16 block for 32 invocations, in the order of its units.
  void place_by_blocks() {
    w_.line("const kUnitStep = {}u;", row_parts());
    w_.line(
        "fn local_row(t: u32) -> u32 {{ return ((t >> 1u) & 3u) * 2u + ((t >> 3u) & 1u) + "
        "((t >> 4u) & 1u) * 8u; }}");
    w_.line("fn first_unit(t: u32) -> u32 {{ return t / 32u * 2u + (t & 1u); }}");
    w_.line(
        "fn unit_of(row: u32, half: u32) -> u32 {{ return half | (((row >> 1u) & 3u) << 1u) | "
        "((row & 1u) << 3u) | (((row >> 3u) & 1u) << 4u); }}");
  }

  // Elements 8 unit .. 8 unit + 7 of a row of a member as they lie in memory (raw), and as f32.
  void declare_weight() {
    if (k_.weight == MatvecWeight::kF32) {
      w_.line("alias Raw = mat2x4<f32>;");
      w_.line("fn widen(raw: Raw) -> mat2x4<f32> {{ return raw; }}");
    } else if (k_.weight == MatvecWeight::kNF4) {
      w_.line("struct Raw {{ codes: u32, absmax: f32 }}");
      write_nf4_functions(w_);
      w_.line("fn widen(raw: Raw) -> mat2x4<f32> {{ return nf4_decode8(raw.codes, raw.absmax); }}");
    } else {
      w_.line("alias Raw = vec4<u32>;");
      w_.line(
          "fn widen(h: Raw) -> mat2x4<f32> {{ return mat2x4<f32>("
          "vec4<f32>(unpack2x16float(h.x), unpack2x16float(h.y)), "
          "vec4<f32>(unpack2x16float(h.z), unpack2x16float(h.w))); }}");
    }
    for (int m = 0; m < k_.members; ++m) {
      w_.line("fn raw{0}(row: u32, unit: u32) -> Raw {{", m);
      w_.line("  let at = p.members[{}].w_offset; let stride = p.members[{}].w_stride;", m, m);
      switch (k_.weight) {
        case MatvecWeight::kF32:
          w_.line("  let i = (at + row * stride + unit) * 2u;");
          w_.line("  return Raw(w{0}[i], w{0}[i + 1u]);", m);
          break;
        case MatvecWeight::kF16:
          w_.line("  return w{}[at + row * stride + unit];", m);
          break;
        case MatvecWeight::kF16Blocks:
          w_.line("  let block = (row / 32u * stride + unit / 2u) * 2u + row / 16u % 2u;");
          w_.line("  return w{}[at + block * 32u + unit_of(row % 16u, unit & 1u)];", m);
          break;
        case MatvecWeight::kNF4:
          w_.line("  let i = at + row * stride + unit;");
          w_.line("  return Raw(w{}[i], nf4_absmax((p.origin / 8u + i) / 8u, p.absmax_offset));",
                  m);
          break;
      }
      w_.line("}}");
    }
  }

  void sum_parts() {
    if (k_.weight == MatvecWeight::kNF4) w_.line("  nf4_prepare(t);");
    w_.line("  let group = wg.x + wg.y * grid.x;");
    w_.line("  if (group >= p.groups) {{ return; }}");
    w_.line("  var member = 0u;");
    for (int m = 1; !k_.gated && m < k_.members; ++m) {
      w_.line("  if (group >= p.members[{0}].first_group) {{ member = {0}u; }}", m);
    }
    w_.line("  let base = (group - p.members[member].first_group) * kGroupRows;");
    for (int q = 0; q < k_.thread_rows; ++q) {
      w_.line("  let row{} = min(base + local_row(t) + {}u, p.members[member].n - 1u);", q, 16 * q);
    }
    for (int s = 0; s < sums(); ++s) w_.line("  var sum{} = 0.0;", s);
    if (k_.gated || k_.members == 1) {
      walk(0);
    } else {
      for (int m = 0; m < k_.members; ++m) {
        w_.line("  {}if (member == {}u) {{", m == 0 ? "" : "else ", m);
        walk(m);
        w_.line("  }}");
      }
    }
  }

  // Over the invocation's units of a row: most of them several at once.
  void walk(int member) {
    const int ahead = k_.loads_ahead;
    w_.line("  {{");
    w_.line("    let x_at = p.members[{}].x_offset;", member);
    w_.line("    var unit = first_unit(t);");
    if (ahead > 1) {
      w_.line("    for (; unit + {}u * kUnitStep < p.units; unit += {}u * kUnitStep) {{", ahead - 1,
              ahead);
      add_units(member, ahead);
      w_.line("    }}");
    }
    w_.line("    for (; unit < p.units; unit += kUnitStep) {{");
    add_units(member, 1);
    w_.line("    }}");
    w_.line("  }}");
  }

  void add_units(int member, int count) {
    for (int u = 0; u < count; ++u) {
      for (int m = 0; m < both(); ++m) {
        for (int q = 0; q < k_.thread_rows; ++q) {
          w_.line("      let r{}_{}_{} = raw{}(row{}, unit + {}u * kUnitStep);", u, m, q,
                  member + m, q, u);
        }
      }
    }
    for (int u = 0; u < count; ++u) {
      w_.line("      {{");
      w_.line("        let column = (unit + {}u * kUnitStep) * 2u;", u);
      for (int m = 0; m < both(); ++m) {
        for (int q = 0; q < k_.thread_rows; ++q) {
          w_.line("        let m{1}_{2} = widen(r{0}_{1}_{2});", u, m, q);
        }
      }
      if (k_.norm) {
        w_.line("        let n0 = norm[p.norm_offset + column] + p.norm_add;");
        w_.line("        let n1 = norm[p.norm_offset + column + 1u] + p.norm_add;");
      }
      for (int i = 0; i < k_.rows; ++i) add_row(i);
      w_.line("      }}");
    }
  }

  void add_row(int i) {
    w_.line("        let at{0} = x_at + {0}u * p.ldx + column;", i);
    w_.line("        var a{0} = x[at{0}]; var b{0} = x[at{0} + 1u];", i);
    if (k_.norm) {
      w_.line("        sum{0} += dot(a{1}, a{1}) + dot(b{1}, b{1});", products() + i, i);
      w_.line("        a{0} *= n0; b{0} *= n1;", i);
    }
    for (int m = 0; m < both(); ++m) {
      for (int q = 0; q < k_.thread_rows; ++q) {
        w_.line("        sum{0} += dot(m{1}_{2}[0], a{3}) + dot(m{1}_{2}[1], b{3});",
                sum_of(m, q, i), m, q, i);
      }
    }
  }

  // Each invocation's place among the parts of its row, which a tree of additions joins.
  void join_parts() {
    const int rows = rows_at_once();
    w_.line("  let place = first_unit(t) * {}u + local_row(t);", rows);
    for (int s = 0; s < sums(); ++s) {
      w_.line("  partial[{}u + place] = sum{};", k_.invocations * s, s);
    }
    for (int half = row_parts() / 2; half >= 1; half /= 2) {
      w_.line("  workgroupBarrier();");
      w_.line("  if (t < {}u) {{", half * rows);
      for (int s = 0; s < sums(); ++s) {
        const int at = k_.invocations * s;
        w_.line("    partial[{}u + t] += partial[{}u + t];", at, at + half * rows);
      }
      w_.line("  }}");
    }
    w_.line("  workgroupBarrier();");
    w_.line("  if (t >= kGroupRows * {}u) {{ return; }}", k_.rows);
    w_.line("  let local = t % kGroupRows;");
    w_.line("  let i = t / kGroupRows;");
    w_.line("  if (base + local >= p.members[member].n) {{ return; }}");
    const int step = k_.invocations;
    for (int m = 0; m < both(); ++m) {
      w_.line("  var total{} = partial[(local / {}u * {}u + i) * {}u + {}u + local % {}u];", m,
              rows, k_.rows, step, step * sum_of(m, 0, 0), rows);
    }
    if (k_.norm) {
      w_.line("  let square = partial[{}u + i * {}u];", step * products(), step);
      w_.line("  let inv_rms = inverseSqrt(square * p.inverse_columns + p.eps);");
      for (int m = 0; m < both(); ++m) w_.line("  total{} *= inv_rms;", m);
    }
    store();
  }

  void store() {
    const auto biased = [&](const std::string& value, int m) {
      const std::string member = k_.gated ? fmt::format("{}", m) : "member";
      std::string text = fmt::format("p.members[{}].alpha * {}", member, value);
      if (!k_.bias) return text;
      const std::string at = fmt::format("p.members[{}].bias_offset + base + local", member);
      if (k_.gated || k_.members == 1) return text + fmt::format(" + bias{}[{}]", m, at);
      w_.line("  var bias = 0.0;");
      for (int j = 0; j < k_.members; ++j) {
        w_.line("  if (member == {0}u) {{ bias = bias{0}[{1}]; }}", j, at);
      }
      return text + " + bias";
    };
    if (k_.gated) {
      w_.line("  let gate = {};", biased("total0", 0));
      w_.line("  var value = activate(gate, sigmoid(gate)) * ({});", biased("total1", 1));
    } else {
      w_.line("  var value = {};", biased("total0", 0));
    }
    w_.line("  let g = p.members[member].y_offset + i * p.ldy + base + local;");
    w_.line("  if (p.accumulate != 0u) {{ value += y[g]; }}");
    w_.line("  y[g] = value;");
  }

  const MatvecKernel k_;
  WgslWriter w_;
  int bindings_ = 0;
};

}  // namespace

const gpu::KernelSpec& matvec_kernel_spec(const MatvecKernel& kernel) {
  return generated_kernel(kernel, "matvec",
                          [](const MatvecKernel& k) { return MatvecWriter(k).write(); });
}

}  // namespace wgrad::ops
