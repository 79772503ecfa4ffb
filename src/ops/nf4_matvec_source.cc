#include "ops/nf4_matvec_source.h"

#include <string>

#include "ops/generated_kernels.h"
#include "ops/wgsl_writer.h"

namespace wgrad::ops {

namespace {

class Nf4MatvecWriter {
 public:
  explicit Nf4MatvecWriter(const Nf4MatvecKernel& kernel)
      : kernel_(kernel), team_rows_(kernel.team_rows()) {}

  std::string write() {
    declare();
    w_.line("@compute @workgroup_size(256)");
    w_.line(
        "fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, "
        "@builtin(local_invocation_index) t: u32) {{");
    w_.line("  let base = (wg.x + wg.y * grid.x) * {}u;", kernel_.group_rows());
    w_.line("  if (base >= p.n) {{ return; }}");
    w_.line("  let first = base + t / {}u * {}u;", 32 * kernel_.teams, team_rows_);
    w_.line("  var unit = t % {}u;", 32 * kernel_.teams);
    for (int r = 0; r < team_rows_; ++r) {
      w_.line("  let row{0} = min(first + {0}u, p.n - 1u) * p.units;", r);
      w_.line("  var piece{0} = load_piece(row{0} + min(unit, p.units - 1u));", r);
    }
    w_.line("  nf4_prepare_pairs(t);");
    for (int i = 0; i < kernel_.rows; ++i) {
      for (int r = 0; r < team_rows_; ++r) w_.line("  var s{}_{} = 0.0;", i, r);
    }
    for (int word = 0; kernel_.unrolled && word < 4; ++word) {
      w_.line("  let at{0} = ((t + {0}u) % 4u) * 2u + (t >> 2u) % 2u;", word);
    }
    w_.line("  while (unit < p.units) {{");
    for (int r = 0; r < team_rows_; ++r) {
      w_.line("    let a{0} = absmax(piece{0}); let q{0} = turned(piece{0}.q, t);", r);
    }
    if (kernel_.unrolled) {
      for (int word = 0; word < 4; ++word) multiply_word(word, std::to_string(word));
    } else {
      w_.line("    for (var word = 0u; word < 4u * p.one; word++) {{");
      w_.line("    let at0 = ((t + word) % 4u) * 2u + (t >> 2u) % 2u;");
      multiply_word(0, "word");
      w_.line("    }}");
    }
    w_.line("    unit += {}u;", 32 * kernel_.teams);
    for (int r = 0; r < team_rows_; ++r) {
      w_.line("    piece{0} = load_piece(row{0} + min(unit, p.units - 1u));", r);
    }
    w_.line("  }}");
    sum();
    w_.line("}}");
    return w_.take();
  }

 private:
  void declare() {
    w_.line("@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;");
    w_.line("@group(0) @binding(1) var<storage, read> bias: array<f32>;");
    w_.line("@group(0) @binding(2) var<storage, read_write> y: array<f32>;");
    w_.line("@group(0) @binding(3) var<storage, read> codes: array<vec4<u32>>;");
    w_.line("@group(0) @binding(4) var<storage, read> absmax_codes: array<u32>;");
    w_.line("@group(0) @binding(5) var<storage, read> absmax_scales: array<f32>;");
    w_.line(
        "struct Params {{ n: u32, units: u32, ldx: u32, ldy: u32, x_offset: u32, y_offset: u32, "
        "bias_offset: u32, accumulate: u32, has_bias: u32, absmax_offset: f32, one: u32 }}");
    w_.line("@group(0) @binding(6) var<uniform> p: Params;");
    write_nf4_pair_functions(w_, kernel_.copies, 256);
    // 32 codes of a row, and what their scale is made of.
    w_.line("struct Piece {{ q: vec4<u32>, code: u32, scale: f32 }}");
    w_.line("fn load_piece(unit: u32) -> Piece {{");
    w_.line("  let block = unit / 2u;");
    w_.line(
        "  return Piece(codes[unit], (absmax_codes[block / 4u] >> (block % 4u * 8u)) & 255u, "
        "absmax_scales[256u + block / 256u]);");
    w_.line("}}");
    w_.line("fn absmax(piece: Piece) -> f32 {{");
    w_.line("  return nf4_pair_absmax(piece.code, piece.scale, p.absmax_offset);");
    w_.line("}}");
    // Eight neighbours begin at eight places of their 32 codes, so that the pieces of x that they
    // read together lie in different banks: word t of theirs first, every other four its upper
    // half.
    w_.line("fn turned(q: vec4<u32>, t: u32) -> vec4<u32> {{");
    w_.line("  var r = select(q, q.yzwx, (t & 1u) != 0u);");
    w_.line("  r = select(r, r.zwxy, (t & 2u) != 0u);");
    w_.line("  let swapped = (r >> vec4<u32>(16u)) | (r << vec4<u32>(16u));");
    w_.line("  return select(r, swapped, (t & 4u) != 0u);");
    w_.line("}}");
  }

  /// `index` of the word; `word` tells its names from those of others.
  void multiply_word(int word, const std::string& index) {
    for (int i = 0; i < kernel_.rows; ++i) {
      for (int half = 0; half < 2; ++half) {
        w_.line("    let x{0}_{1}_{2} = x[p.x_offset + {1}u * p.ldx + unit * 8u + (at{0} ^ {2}u)];",
                word, i, half);
      }
    }
    for (int r = 0; r < team_rows_; ++r) {
      for (int half = 0; half < 2; ++half) {
        w_.line(
            "    let w{0}_{1}_{2} = vec4<f32>(unpack2x16float(nf4_pair(q{1}[{5}], {3}u, t)), "
            "unpack2x16float(nf4_pair(q{1}[{5}], {4}u, t)));",
            word, r, half, 2 * half, 2 * half + 1, index);
      }
      for (int i = 0; i < kernel_.rows; ++i) {
        w_.line(
            "    s{0}_{1} += a{1} * (dot(w{2}_{1}_0, x{2}_{0}_0) + dot(w{2}_{1}_1, x{2}_{0}_1));",
            i, r, word);
      }
    }
  }

  // In the table's place: the sums of all invocations, then those of 16 neighbours, then a team's.
  void sum() {
    const int sums = kernel_.rows * team_rows_;
    w_.line("  workgroupBarrier();");
    for (int i = 0; i < kernel_.rows; ++i) {
      for (int r = 0; r < team_rows_; ++r) {
        w_.line("  nf4_pairs[{}u + t] = bitcast<u32>(s{}_{});", 256 * (i * team_rows_ + r), i, r);
      }
    }
    w_.line("  workgroupBarrier();");
    w_.line("  var part = 0.0;");
    w_.line("  if (t < {}u) {{", 16 * sums);
    w_.line("    for (var j = 0u; j < 16u; j++) {{");
    w_.line("      part += bitcast<f32>(nf4_pairs[t * 16u + (j + t) % 16u]);");
    w_.line("    }}");
    w_.line("  }}");
    w_.line("  workgroupBarrier();");
    w_.line("  if (t < {}u) {{ nf4_pairs[t] = bitcast<u32>(part); }}", 16 * sums);
    w_.line("  workgroupBarrier();");
    w_.line("  let local = t % {}u;", kernel_.group_rows());
    w_.line("  let i = t / {}u;", kernel_.group_rows());
    w_.line("  if (i >= {}u || base + local >= p.n) {{ return; }}", kernel_.rows);
    w_.line("  let at = (i * {0}u + local % {0}u) * 16u + local / {0}u * {1}u;", team_rows_,
            2 * kernel_.teams);
    w_.line("  var value = 0.0;");
    w_.line("  for (var j = 0u; j < {}u; j++) {{ value += bitcast<f32>(nf4_pairs[at + j]); }}",
            2 * kernel_.teams);
    w_.line("  if (p.has_bias != 0u) {{ value += bias[p.bias_offset + base + local]; }}");
    w_.line("  let g = p.y_offset + i * p.ldy + base + local;");
    w_.line("  if (p.accumulate != 0u) {{ value += y[g]; }}");
    w_.line("  y[g] = value;");
  }

  const Nf4MatvecKernel& kernel_;
  const int team_rows_;
  WgslWriter w_;
};

}  // namespace

const gpu::KernelSpec& nf4_matvec_kernel(const Nf4MatvecKernel& kernel) {
  return generated_kernel(kernel, "nf4_matvec",
                          [](const Nf4MatvecKernel& k) { return Nf4MatvecWriter(k).write(); });
}

}  // namespace wgrad::ops
