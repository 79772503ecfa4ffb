#include <fmt/format.h>

#include "ops/attention_matrix_grad_kv.h"

namespace wgrad::ops::attention_matrix {
namespace {

/// For packed heads of 128 and 256: 32 queries a step, eight of one key a lane, four barriers. With
/// 32 keys half of the lanes take keys.
struct GradKvLayout : Layout {
  explicit GradKvLayout(int64_t packed_dim)
      : Layout(packed_dim),
        keys(grad_kv_keys(*this)),
        blocks(wide() ? 1 : 2),
        columns(wide() ? packed_dim / 64 : half()),
        grad_out(kTile * row),
        statistics(2 * kTile * row),
        scores(statistics + 2 * kTile / 4),
        score_size(keys * kScoreRow),
        weights(scores + 2 * score_size),
        weight_size(keys * kWeightRow),
        total(weights + 2 * weight_size) {}
  int64_t keys;
  int blocks;       ///< of 16 keys that a subgroup multiplies with queries
  int64_t columns;  ///< blocks of 16 columns that it sums
  int64_t grad_out, statistics, scores, score_size, weights, weight_size, total;
};

AttentionMatrixShape shape_of(const GradKvLayout& l) {
  return {kGradKvKeys, kGradKvSubgroups * 32, l.total * 16, kGradKvKeys / l.keys};
}

void write_grad_kv_load(WgslWriter& w, const Staging& staging) {
  staging.load(w, "q", "q", "0u", "qb", "last_query", "params.heads", "head");
  staging.load(w, "d", "grad_out", "0u", "qb", "last_query", "params.heads", "head");
  write_grad_kv_statistic(w, "head", "qb", kTile);
}

void write_grad_kv_store(WgslWriter& w, const GradKvLayout& l, const Staging& staging) {
  staging.store(w, "q", 0);
  staging.store(w, "d", l.grad_out);
  w.line("    if (t < {}u) {{", 2 * kTile);
  w.line("      sm[{}u + t / 4u][t % 4u] = bitcast<u32>(statistic * statistic_factor);",
         l.statistics);
  w.line("    }}");
}

void write_grad_kv_products(WgslWriter& w, const GradKvLayout& l) {
  for (int s = 0; s < l.blocks; ++s) w.line("    var s{} = {}();", s, kResult);
  for (int64_t d = 0; d < l.steps(); ++d) {
    w.line("    {{ let qf = {};",
           load_matrix("right", "col_major", fmt::format("product_in + {}u", d * 2), l.row));
    for (int s = 0; s < l.blocks; ++s) {
      w.line("      s{0} = subgroupMatrixMultiplyAccumulate(f{0}_{1}, qf, s{0});", s, d);
    }
    w.line("    }}");
  }
  for (int64_t s = 0; s < l.blocks; ++s) {
    w.line("    subgroupMatrixStore<row_major>(&sm, product_out + {}u, s{}, {}u);",
           s * 16 * kScoreRow, s, kScoreRow);
  }
}

void write_grad_kv_weights(WgslWriter& w, const GradKvLayout& l, bool keep, bool capped) {
  if (l.wide()) w.line("    if (t < {}u) {{", 4 * l.keys);
  for (int i = 0; i < 2; ++i) {
    std::string score = score_text(capped, fmt::format("four(my_scores + {}u)", i));
    if (capped) {
      w.line("    let c{} = {};", i, score);
      score = fmt::format("c{}", i);
    }
    w.line("    var x{} = exp2({} * to_log2 - four({}u + part * 2u));", i, score, l.statistics + i);
  }
  w.line("    if (tile_first < first + {}u || tile_first + {}u > unmasked_end) {{", l.keys, kTile);
  w.line("      let my_query = tile_first + part * 8u;");
  write_mask(w, "x", 2, "my_query", "vec4<f32>()", "key", "end");
  w.line("    }}");
  for (int i = 0; i < 2; ++i) {
    w.line(
        "    let y{0} = x{0} * ((four(my_scores + {1}u) - four({2}u + part * 2u)) * 0x1p-16){3};",
        i, l.score_size + i, l.statistics + kTile / 4 + i,
        capped ? fmt::format(" * tanh_slope(c{})", i) : "");
  }
  w.line("    sm[my_weights] = packed(x0, x1);");
  w.line("    let grad_scores = packed(y0, y1);");
  w.line("    sm[my_weights + {}u] = grad_scores;", l.weight_size);
  if (keep) w.line("    kept[keep_at] = grad_scores;");
  if (l.wide()) w.line("    }}");
}

void write_grad_kv_sums(WgslWriter& w, const GradKvLayout& l) {
  for (int64_t kk = 0; kk < 2; ++kk) {
    for (int64_t s = 0; s < 2; ++s) {
      w.line("    let p{}_{} = {};", s, kk,
             load_matrix("left", "row_major",
                         fmt::format("sum_left + {}u", s * 16 * kWeightRow + kk * 2), kWeightRow));
    }
    for (int64_t n = 0; n < l.columns; ++n) {
      w.line("    {{ let qf = {};",
             load_matrix("right", "row_major",
                         fmt::format("sum_right + {}u", kk * 16 * l.row + n * 2), l.row));
      for (int s = 0; s < 2; ++s) {
        w.line("      a{0}_{1} = subgroupMatrixMultiplyAccumulate(p{0}_{2}, qf, a{0}_{1});", s, n,
               kk);
      }
      w.line("    }}");
    }
  }
}

}  // namespace

void write_grad_kv_bindings(WgslWriter& w, const char* kept_type) {
  const Names reads = {{"q", "vec4<u32>"}, {"kv", "vec4<u32>"},   {"grad_out", "vec4<u32>"},
                       {"row_end", "u32"}, {"statistics", "f32"}, {"factors", "vec2<f32>"}};
  if (kept_type == nullptr) {
    write_bindings(w, reads, {{"grad_k", "Cell"}, {"grad_v", "Cell"}});
    return;
  }
  write_bindings(w, reads, {{"grad_k", "Cell"}, {"grad_v", "Cell"}, {"kept", kept_type}});
  write_kept_tile(w);
}

void write_grad_kv_head(WgslWriter& w, const Layout& l, int64_t step_queries, bool capped) {
  const int64_t keys = grad_kv_keys(l);
  w.line("// One past the last query that sees the key.");
  w.line("fn last_query_of(key: u32) -> u32 {{");
  w.line("  let end = min(row_end[key] - params.origin, params.queries);");
  w.line("  return select(end, min(end, key + params.window), params.window > 0u);");
  w.line("}}");
  w.line("@compute @workgroup_size({})", kGradKvSubgroups * 32);
  w.line("fn main(@builtin(workgroup_id) group_id: vec3<u32>,");
  w.line("        @builtin(num_workgroups) group_count: vec3<u32>,");
  w.line("        @builtin(local_invocation_index) t: u32) {{");
  w.line("  let group = group_id.x + group_id.y * group_count.x;");
  w.line("  if (group >= params.groups) {{ return; }}");
  w.line("  let sg = t / 32u;");
  w.line("  let lane = t % 32u;");
  w.line("  let kv_head = params.first_kv_head + group % params.kv_head_count;");
  w.line("  let first = group / params.kv_head_count * {}u;", keys);
  w.line("  let start = first / {0}u * {0}u;", kGradKvKeys);
  w.line("  let last_query = params.queries - 1u;");
  w.line("  let last_key = params.keys - 1u;");
  w.line("  let v_base = params.keys * params.kv_heads;");
  w.line("  let group_heads = params.heads / params.kv_heads;");
  w.line("  // role 0: scores and grad_v, 1: grad_out v^T and grad_k");
  w.line("  // side: part of the products, then of the columns");
  if (l.wide()) {
    w.line("  let owned = 0u;                 // the subgroup's first key in the tile");
    w.line("  let role = sg / 4u;");
    w.line("  let side = sg % 4u;");
  } else {
    w.line("  let owned = (sg / 4u) * 32u;    // the subgroup's first key in the tile");
    w.line("  let role = (sg / 2u) % 2u;");
    w.line("  let side = sg % 2u;");
  }
  w.line("  let row = sg % {}u * 8u + lane % 8u;", keys / 8);
  w.line("  let part = lane / 8u;");
  w.line("  let key = first + row;");
  w.line("  let end = select(0u, last_query_of(min(key, last_key)), is_own(key));");
  w.line("  let queries_end = max(last_query_of(min(start + {}u, last_key)), start);",
         kGradKvKeys - 1);
  w.line("  let tiles = (queries_end - start + {}u) / {}u;", kTile - 1, kTile);
  w.line("  let whole = is_own(first) && is_own(first + {}u);", keys - 1);
  w.line("  let unmasked_end = select(0u, last_query_of(min(first, last_key)), whole);");
  w.line("  let statistic_part = t / {}u % 2u;  // 0: logsumexp, 1: delta", step_queries);
  w.line("  let delta_factor = factors[3].x * factors[2].x;");
  w.line("  let statistic_factor = select(1.0, delta_factor, statistic_part == 1u);");
  w.line("  var statistic = 0.0;");
  write_grad_factors(w, capped);
}

void write_grad_kv_statistic(WgslWriter& w, const char* head, const char* first,
                             int64_t step_queries) {
  w.line("    {{ let query = min({} + t % {}u, last_query);", first, step_queries);
  w.line("      statistic = statistics[({} * params.queries + query) * 2u + statistic_part]; }}",
         head);
}

void write_grad_kv_keys(WgslWriter& w, const Layout& l, int count, const char* first_row) {
  for (int s = 0; s < count; ++s) {
    for (int64_t d = 0; d < l.steps(); ++d) {
      w.line("  var f{}_{} = subgroup_matrix_left<f16, 16, 16>();", s, d);
    }
  }
  for (int role = 0; role < 2; ++role) {
    w.line("  workgroupBarrier();");
    w.line("  for (var e = t; e < {}u; e += 256u) {{", grad_kv_keys(l) * l.units);
    w.line("    let r = e / {}u;", l.units);
    w.line(
        "    sm[r * {}u + e % {}u] = kv[({} + min(first + r, last_key) * params.kv_heads + "
        "kv_head) * {}u + e % {}u];",
        l.row, l.units, role == 0 ? "0u" : "v_base", l.units, l.units);
    w.line("  }}");
    w.line("  workgroupBarrier();");
    w.line("  if (role == {}u) {{", role);
    for (int64_t s = 0; s < count; ++s) {
      for (int64_t d = 0; d < l.steps(); ++d) {
        w.line("    f{}_{} = {};", s, d,
               load_matrix("left", "row_major",
                           fmt::format("({} + {}u) * {}u + {}u", first_row, 16 * s, l.row, d * 2),
                           l.row));
      }
    }
    w.line("  }}");
  }
  w.line("  workgroupBarrier();");
}

void write_grad_kv_results(WgslWriter& w, const Layout& l) {
  w.line("  // 16 x 16 at a time through workgroup memory.");
  w.line("  let block = sg * 80u;");
  w.line("  let mine = block + (lane % 16u) * 5u + (lane / 16u) * 2u;");
  w.line("  let result = params.scale * factors[0].y;");
  const int64_t columns = l.wide() ? l.dim / 64 : l.half();
  for (int64_t s = 0; s < 2; ++s) {
    w.line("  let g{} = first + owned + {}u + lane % 16u;", s, 16 * s);
    for (int64_t n = 0; n < columns; ++n) {
      w.line("  subgroupMatrixStore<row_major>(&sm, block, a{}_{}, 5u);", s, n);
      w.line("  workgroupBarrier();");
      w.line("  if (is_own(g{})) {{", s);
      w.line("    let unit = side * {}u + {}u + (lane / 16u) * 2u;", columns * 4, n * 4);
      w.line("    let at = g{} * params.kv_heads + kv_head;", s);
      for (int e = 0; e < 2; ++e) {
        w.line("    if (unit + {0}u < UNITS) {{", e);
        w.line("      let sum = four(mine + {0}u);", e);
        w.line("      if (role == 0u) {{ store_grad_v(at, unit + {}u, sum * factors[3].y); }}", e);
        w.line("      else {{ store_grad_k(at, unit + {}u, sum * result * grad_unit); }}", e);
        w.line("    }}");
      }
      w.line("  }}");
      w.line("  workgroupBarrier();");
    }
  }
}

AttentionMatrixShape grad_kv_shape(int64_t packed_dim) {
  return packed_dim == 64 ? grad_kv_ring_shape() : shape_of(GradKvLayout(packed_dim));
}

std::string grad_kv_source(int64_t packed_dim, bool keep, bool capped) {
  if (packed_dim == 64) return grad_kv_ring_source(keep, capped);
  const GradKvLayout l(packed_dim);
  const Staging staging(l, shape_of(l).invocations);
  WgslWriter w;
  write_grad_kv_bindings(w, keep ? "vec4<u32>" : nullptr);
  write_common(w, l.total);
  write_grad_kv_head(w, l, kTile, capped);
  w.line("  let steps = tiles * group_heads;");
  w.line("  let my_scores = {}u + row * {}u + part * 2u;", l.scores, kScoreRow);
  w.line("  let my_weights = {}u + row * {}u + part;", l.weights, kWeightRow);
  write_grad_kv_keys(w, l, l.blocks, l.wide() ? "side / 2u * 16u" : "owned");
  staging.write_lanes(w);
  for (int s = 0; s < 2; ++s) {
    for (int64_t n = 0; n < l.columns; ++n) w.line("  var a{}_{} = {}();", s, n, kResult);
  }
  for (const char* name : {"q", "d"}) staging.declare(w, name);
  w.line("  var head = kv_head * group_heads;");
  w.line("  var qb = start;");
  if (keep) {
    w.line("  var keep_next = kept_tile(head, start / 64u, start / 32u) * 256u + {}t;",
           l.wide() ? "(first - start) * 4u + " : "");
    w.line(
        "  let keep_head = (kept_of_head() - tiles) * 256u;  // from a head's last tile to the "
        "next");
  }
  write_grad_kv_load(w, staging);
  write_grad_kv_store(w, l, staging);
  w.line("  workgroupBarrier();");
  w.line("  let product_in = role * {}u + side % 2u * {}u;", l.grad_out, 16 * l.row);
  w.line("  let product_out = {}u + role * {}u + {} * {}u + side % 2u * 4u;", l.scores,
         l.score_size, l.wide() ? "side / 2u * 16u" : "owned", kScoreRow);
  w.line("  let sum_left = {}u + role * {}u + owned * {}u;", l.weights, l.weight_size, kWeightRow);
  w.line("  let sum_right = (1u - role) * {}u + side * {}u;", l.grad_out, l.columns * 2);
  w.line("  for (var step = 0u; step < steps; step++) {{");
  w.line("    let tile_first = qb;");
  if (keep) {
    w.line("    let keep_at = keep_next;");
    w.line("    keep_next += 256u;");
  }
  write_grad_kv_products(w, l);
  w.line("    qb += {}u;", kTile);
  w.line("    if (qb >= queries_end) {{");
  w.line("      qb = start;");
  w.line("      head++;");
  if (keep) w.line("      keep_next += keep_head;");
  w.line("    }}");
  w.line("    if (step + 1u < steps) {{");
  write_grad_kv_load(w, staging);
  w.line("    }}");
  w.line("    workgroupBarrier();");
  write_grad_kv_weights(w, l, keep, capped);
  w.line("    workgroupBarrier();");
  write_grad_kv_sums(w, l);
  w.line("    workgroupBarrier();");
  write_grad_kv_store(w, l, staging);
  w.line("    workgroupBarrier();");
  w.line("  }}");
  write_grad_kv_results(w, l);
  w.line("}}");
  return w.take();
}

}  // namespace wgrad::ops::attention_matrix
