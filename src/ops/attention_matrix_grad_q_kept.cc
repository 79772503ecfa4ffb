#include <fmt/format.h>

#include "ops/attention_matrix_text.h"

namespace wgrad::ops::attention_matrix {
namespace {

/// grad_q = scale grad_s k, a plain product: 128 queries of one head, 64 keys a step. Two subgroups
/// own 32 queries, each half of the columns; of wide heads four, and a workgroup owns 64 queries.
/// The kept tiles have keys as rows, which makes them left operands read by columns.
struct GradQKeptLayout : Layout {
  explicit GradQKeptLayout(int64_t packed_dim)
      : Layout(packed_dim),
        team(wide() ? 4 : 2),
        blocks(packed_dim / 16 / team),
        fetches(8 / team),
        queries(kSubgroups / team * 32),
        grad_row(queries / 8 + 1),
        k(kKeys * grad_row),
        total(k + kKeys * row) {}
  static constexpr int64_t kSubgroups = 8, kKeys = 64;
  int64_t team;      ///< subgroups that own 32 queries
  int64_t blocks;    ///< of 16 columns that a subgroup owns
  int64_t fetches;   ///< units of a tile that a lane fetches
  int64_t queries;   ///< of a workgroup
  int64_t grad_row;  ///< distance of keys in units
  int64_t k, total;
};

AttentionMatrixShape shape_of(const GradQKeptLayout& l) {
  return {l.queries, l.kSubgroups * 32, l.total * 16};
}

void write_head(WgslWriter& w, const GradQKeptLayout& l) {
  w.line("@compute @workgroup_size({})", shape_of(l).invocations);
  w.line("fn main(@builtin(workgroup_id) group_id: vec3<u32>,");
  w.line("        @builtin(num_workgroups) group_count: vec3<u32>,");
  w.line("        @builtin(local_invocation_index) t: u32) {{");
  w.line("  let group = group_id.x + group_id.y * group_count.x;");
  w.line("  if (group >= params.groups) {{ return; }}");
  w.line("  let sg = t / 32u;");
  w.line("  let lane = t % 32u;");
  w.line("  let pair = sg / {}u;", l.team);
  w.line("  let side = sg % {}u;", l.team);
  w.line("  let group_heads = params.heads / params.kv_heads;");
  w.line("  let heads = params.kv_head_count * group_heads;");
  w.line("  let head = params.first_kv_head * group_heads + group % heads;");
  w.line("  let kv_head = head / group_heads;");
  w.line("  // The last tiles see the most keys: they start first.");
  w.line("  let first = (params.groups / heads - 1u - group / heads) * {}u;", l.queries);
  w.line("  let last_query = params.queries - 1u;");
  w.line("  let last_key = params.keys - 1u;");
  w.line("  let keys_end = min(first + {}u, params.keys);", l.queries);
  w.line(
      "  var keys = min(first_key(clamp(first, params.first_token, last_query)), keys_end) / {}u;",
      l.kKeys);
  w.line("  let steps = (keys_end + {}u) / {}u - keys;", l.kKeys - 1, l.kKeys);
  w.line("  // Of the pair's tile of 32 queries a subgroup fetches its share.");
  w.line("  let queries = first / 32u + pair;");
  w.line("  let own_keys = first_key(clamp(queries * 32u, params.first_token, last_query)) / {}u;",
         l.kKeys);
  w.line("  let has_queries = queries * 32u < params.queries;");
  w.line("  let tile_unit = side * {}u + lane;", 32 * l.fetches);
  w.line("  let tile_slot = (side * {}u + lane % 8u) * {}u + pair * 4u + lane / 8u;", 8 * l.fetches,
         l.grad_row);
}

void write_load(WgslWriter& w, const GradQKeptLayout& l, const Staging& staging) {
  w.line("    if (has_queries && keys >= own_keys && 2u * keys <= queries) {{");
  w.line("      let at = kept_tile(head, keys, queries) * 256u + tile_unit;");
  for (int64_t i = 0; i < l.fetches; ++i) w.line("      g{0} = kept[at + {1}u];", i, 32 * i);
  w.line("    }} else {{  // a tile that no query of the pair sees is not kept");
  for (int64_t i = 0; i < l.fetches; ++i) w.line("      g{} = vec4<u32>();", i);
  w.line("    }}");
  staging.load(w, "k", "kv", "0u", "keys * 64u", "last_key", "params.kv_heads", "kv_head");
  w.line("    keys++;");
}

void write_products(WgslWriter& w, const GradQKeptLayout& l) {
  for (int64_t kk = 0; kk < l.kKeys / 16; ++kk) {
    for (int64_t s = 0; s < 2; ++s) {
      w.line("    let p{}_{} = {};", s, kk,
             load_matrix("left", "col_major",
                         fmt::format("{}u + pair * 4u", kk * 16 * l.grad_row + s * 2), l.grad_row));
    }
    for (int64_t n = 0; n < l.blocks; ++n) {
      w.line(
          "    {{ let kf = {};",
          load_matrix("right", "row_major",
                      fmt::format("{}u + side * {}u", l.k + kk * 16 * l.row + n * 2, l.blocks * 2),
                      l.row));
      for (int s = 0; s < 2; ++s) {
        w.line("      a{0}_{1} = subgroupMatrixMultiplyAccumulate(p{0}_{2}, kf, a{0}_{1});", s, n,
               kk);
      }
      w.line("    }}");
    }
  }
}

void write_results(WgslWriter& w, const GradQKeptLayout& l) {
  w.line("  // 16 x 16 at a time through workgroup memory.");
  w.line("  let block = sg * 80u;");
  w.line("  let mine = block + (lane % 16u) * 5u + (lane / 16u) * 2u;");
  w.line("  let result = params.scale * factors[1].y;");
  for (int64_t s = 0; s < 2; ++s) {
    w.line("  let q{} = first + pair * 32u + {}u + lane % 16u;", s, 16 * s);
    for (int64_t n = 0; n < l.blocks; ++n) {
      w.line("  subgroupMatrixStore<row_major>(&sm, block, a{}_{}, 5u);", s, n);
      w.line("  workgroupBarrier();");
      w.line("  if (is_own(q{})) {{", s);
      w.line("    let unit = side * {}u + {}u + (lane / 16u) * 2u;", l.blocks * 4, n * 4);
      for (int e = 0; e < 2; ++e) {
        w.line(
            "    if (unit + {0}u < UNITS) {{ store_grad_q(q{1} * params.heads + head, unit + {0}u, "
            "four(mine + {0}u) * result * grad_unit); }}",
            e, s);
      }
      w.line("  }}");
      w.line("  workgroupBarrier();");
    }
  }
}

}  // namespace

AttentionMatrixShape grad_q_kept_shape(int64_t packed_dim) {
  return shape_of(GradQKeptLayout(packed_dim));
}

std::string grad_q_kept_source(int64_t packed_dim) {
  const GradQKeptLayout l(packed_dim);
  const Staging staging(l, shape_of(l).invocations, l.kKeys);
  WgslWriter w;
  write_bindings(
      w,
      {{"kept", "vec4<u32>"}, {"kv", "vec4<u32>"}, {"row_begin", "u32"}, {"factors", "vec2<f32>"}},
      {{"grad_q", "Cell"}});
  write_kept_tile(w);
  write_common(w, l.total);
  write_head(w, l);
  write_grad_factors(w, false);
  staging.write_lanes(w);
  staging.declare(w, "k");
  for (int64_t i = 0; i < l.fetches; ++i) w.line("  var g{}: vec4<u32>;", i);
  write_load(w, l, staging);
  for (int s = 0; s < 2; ++s) {
    for (int64_t n = 0; n < l.blocks; ++n) w.line("  var a{}_{} = {}();", s, n, kResult);
  }
  w.line("  for (var step = 0u; step < steps; step++) {{");
  for (int64_t i = 0; i < l.fetches; ++i)
    w.line("    sm[tile_slot + {}u] = g{};", 8 * i * l.grad_row, i);
  staging.store(w, "k", l.k);
  w.line("    if (step + 1u < steps) {{");
  write_load(w, l, staging);
  w.line("    }}");
  w.line("    workgroupBarrier();");
  write_products(w, l);
  w.line("    workgroupBarrier();");
  w.line("  }}");
  write_results(w, l);
  w.line("}}");
  return w.take();
}

}  // namespace wgrad::ops::attention_matrix
