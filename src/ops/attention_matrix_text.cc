#include "ops/attention_matrix_text.h"

#include <fmt/format.h>

namespace wgrad::ops::attention_matrix {

std::string load_matrix(const char* side, const char* order, const std::string& at, int64_t row) {
  return fmt::format("subgroupMatrixLoad<subgroup_matrix_{}<f16, 16, 16>, {}>(&sm, {}, {}u)", side,
                     order, at, row);
}

void write_common(WgslWriter& w, int64_t units) {
  w.line("var<workgroup> sm: array<vec4<u32>, {}>;", units);
  w.line("fn packed(x: vec4<f32>, y: vec4<f32>) -> vec4<u32> {{");
  w.line(
      "  return vec4<u32>(pack2x16float(x.xy), pack2x16float(x.zw), pack2x16float(y.xy), "
      "pack2x16float(y.zw));");
  w.line("}}");
  w.line("fn four(at: u32) -> vec4<f32> {{ return bitcast<vec4<f32>>(sm[at]); }}");
}

void write_query_head(WgslWriter& w, const AttentionMatrixShape& shape) {
  w.line("@compute @workgroup_size({})", shape.invocations);
  w.line("fn main(@builtin(workgroup_id) group_id: vec3<u32>,");
  w.line("        @builtin(num_workgroups) group_count: vec3<u32>,");
  w.line("        @builtin(local_invocation_index) t: u32) {{");
  w.line("  let group = group_id.x + group_id.y * group_count.x;");
  w.line("  if (group >= params.groups) {{ return; }}");
  w.line("  let sg = t / 32u;");
  w.line("  let lane = t % 32u;");
  w.line("  let head = group % params.heads;");
  w.line("  let kv_head = head / (params.heads / params.kv_heads);");
  w.line("  // The last tiles see the most keys: they start first.");
  w.line("  let first = (params.groups / params.heads - 1u - group / params.heads) * {}u;",
         shape.rows);
  w.line("  let last_query = params.queries - 1u;");
  w.line("  let last_key = params.keys - 1u;");
  w.line("  let v_base = params.keys * params.kv_heads;  // cells of kv that hold k");
  w.line(
      "  let keys_end = min(min(first + {}u, params.queries) + params.query_offset, params.keys);",
      shape.rows);
  w.line(
      "  var kb = min(first_key(clamp(first, params.first_token, last_query)), keys_end) / {0}u * "
      "{0}u;",
      kTile);
  w.line("  let tiles = (keys_end - kb + {}u) / {}u;", kTile - 1, kTile);
}

void write_bindings(WgslWriter& w, Names reads, Names writes) {
  int binding = 0;
  for (const auto& [name, type] : reads) {
    w.line("@group(0) @binding({}) var<storage, read> {}: array<{}>;", binding++, name, type);
  }
  for (const auto& [name, type] : writes) {
    w.line("@group(0) @binding({}) var<storage, read_write> {}: array<{}>;", binding++, name, type);
  }
  w.line("@group(0) @binding({}) var<uniform> params: Params;", binding);
}

void write_mask(WgslWriter& w, const char* name, int count, const char* base, const char* masked,
                const char* begin, const char* end) {
  for (int i = 0; i < count; ++i) {
    w.line("      {{ let at = vec4<u32>({} + {}u) + vec4<u32>(0u, 1u, 2u, 3u);", base, 4 * i);
    w.line(
        "        {0}{1} = select({2}, {0}{1}, (at >= vec4<u32>({3})) & (at < vec4<u32>({4}))); }}",
        name, i, masked, begin, end);
  }
}

void write_cap_factors(WgslWriter& w) {
  w.line("  // Bounded so that no product with it leaves f32.");
  w.line("  let to_cap = min(params.scale / SOFT_CAP * factors[0].y * factors[1].y, 1e28);");
  w.line("  let to_log2 = SOFT_CAP * 1.4426950408889634;");
}

std::string score_text(bool capped, const std::string& product) {
  return capped ? "good_tanh(" + product + " * to_cap)" : product;
}

void write_grad_factors(WgslWriter& w, bool capped) {
  if (capped) {
    write_cap_factors(w);
  } else {
    w.line("  let to_log2 = params.scale_log2e * factors[0].y * factors[1].y;");
  }
  w.line("  let grad_unit = 65536.0 * factors[2].y * factors[3].y;");
}

void write_kept_tile(WgslWriter& w) {
  w.line("fn kept_before(keys: u32) -> u32 {{");
  w.line("  let queries = (params.queries + 31u) / 32u;");
  w.line("  let full = select(0u, (queries - params.kept_tiles) / 2u + 1u,");
  w.line("                    queries >= params.kept_tiles);");
  w.line("  let first = min(keys, full);");
  w.line("  return first * params.kept_tiles + (keys - first) * (queries + 1u - keys - first);");
  w.line("}}");
  w.line("fn kept_of_head() -> u32 {{ return kept_before((params.keys + 63u) / 64u); }}");
  w.line("fn kept_tile(head: u32, keys: u32, queries: u32) -> u32 {{");
  w.line("  let kept_head = head - params.first_kv_head * (params.heads / params.kv_heads);");
  w.line("  return kept_head * kept_of_head() + kept_before(keys) + queries - 2u * keys;");
  w.line("}}");
}

}  // namespace wgrad::ops::attention_matrix
