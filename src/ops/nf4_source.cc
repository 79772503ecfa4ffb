#include "ops/nf4_source.h"

#include <string>

#include "cpu/nf4.h"

namespace wgrad::ops {

void write_nf4_functions(WgslWriter& w) {
  std::string table;
  for (float v : cpu::kNf4Table) table += fmt::format("{:.9g}f, ", v);
  w.line("const kNf4Table = array<f32, 16>({});", table);
  w.line("var<workgroup> nf4_table: array<f32, 16>;");
  w.line("fn nf4_prepare(t: u32) {{");
  w.line("  if (t < 16u) {{ var table = kNf4Table; nf4_table[t] = table[t]; }}");
  w.line("  workgroupBarrier();");
  w.line("}}");
  w.line("fn nf4_absmax(block: u32, offset: f32) -> f32 {{");
  w.line("  let code = (absmax_codes[block / 4u] >> (block % 4u * 8u)) & 255u;");
  w.line("  let scaled = absmax_scales[code] * absmax_scales[256u + block / {}u];",
         cpu::kNf4NestedBlock);
  w.line("  return scaled + offset;");
  w.line("}}");
  w.line("fn nf4_decode8(q: u32, absmax: f32) -> mat2x4<f32> {{");
  w.line("  return mat2x4<f32>(");
  for (int half = 0; half < 2; ++half) {
    w.line(
        "    absmax * vec4<f32>(nf4_table[(q >> {}u) & 15u], nf4_table[(q >> {}u) & 15u], "
        "nf4_table[(q >> {}u) & 15u], nf4_table[(q >> {}u) & 15u]){}",
        16 * half + 4, 16 * half, 16 * half + 12, 16 * half + 8, half == 0 ? "," : ");");
  }
  w.line("}}");
}

}  // namespace wgrad::ops
