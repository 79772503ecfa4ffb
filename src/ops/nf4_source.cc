#include "ops/nf4_source.h"

#include <bit>
#include <cstdint>
#include <string>

#include "cpu/nf4.h"

namespace wgrad::ops {

namespace {

/// The nearest half of a value that is zero or normal there, ties to even.
constexpr uint32_t half_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
  if (magnitude == 0) return sign;
  return sign | ((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}
static_assert(half_bits(1.0f) == 0x3c00 && half_bits(-0.5f) == 0xb800 &&
              half_bits(0x1.003p0f) == 0x3c01);

}  // namespace

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

void write_nf4_pair_functions(WgslWriter& w, int copies, int invocations) {
  std::string halves;
  for (float v : cpu::kNf4Table) halves += fmt::format("{}u, ", half_bits(v));
  w.line("const kNf4Halves = array<u32, 16>({});", halves);
  w.line("var<workgroup> nf4_pairs: array<u32, {}>;", 256 * copies);
  w.line("var<workgroup> nf4_map: array<f32, 256>;");
  w.line("fn nf4_prepare_pairs(t: u32) {{");
  w.line("  var halves = kNf4Halves;");
  w.line("  for (var i = t; i < 256u; i += {}u) {{", invocations);
  w.line("    let pair = halves[i >> 4u] | (halves[i & 15u] << 16u);");
  w.line("    for (var c = 0u; c < {0}u; c++) {{ nf4_pairs[i * {0}u + (c + i) % {0}u] = pair; }}",
         copies);
  w.line("    nf4_map[i] = absmax_scales[i];");
  w.line("  }}");
  w.line("  workgroupBarrier();");
  w.line("}}");
  const int shift = std::countr_zero(static_cast<unsigned>(copies));
  w.line("fn nf4_pair(q: u32, byte: u32, lane: u32) -> u32 {{");
  w.line("  return nf4_pairs[(((q >> (8u * byte)) & 255u) << {}u) | (lane & {}u)];", shift,
         copies - 1);
  w.line("}}");
  w.line("fn nf4_pair_absmax(code: u32, scale: f32, offset: f32) -> f32 {{");
  w.line("  let scaled = nf4_map[code] * scale;");
  w.line("  return scaled + offset;");
  w.line("}}");
}

}  // namespace wgrad::ops
