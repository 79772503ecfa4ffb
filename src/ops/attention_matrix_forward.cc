#include <fmt/format.h>

#include "ops/attention_matrix_text.h"

namespace wgrad::ops::attention_matrix {
namespace {

/// Two subgroups own 32 queries: they split the scores by keys and the sums by columns of v; each
/// takes the softmax of 16 rows, half a row a lane. Wide heads take four subgroups, of which each
/// multiplies 16 of the queries and takes the softmax of 8 rows, a quarter of a row a lane.
struct ForwardLayout : Layout {
  explicit ForwardLayout(int64_t packed_dim)
      : Layout(packed_dim),
        team(wide() ? 4 : 2),
        blocks(wide() ? 1 : 2),
        vectors(8 / team),
        pairs(wide() ? 2 : packed_dim / 32),
        v(kTile * row),
        scores(2 * kTile * row),
        weights(scores + pairs * 32 * kScoreRow),
        factors(weights + pairs * 32 * kWeightRow),
        total(factors + pairs * 8) {}
  int64_t team;     ///< subgroups that own 32 queries, and lanes of a row of the softmax
  int blocks;       ///< of 16 queries that a subgroup multiplies
  int64_t vectors;  ///< of four scores that a lane takes
  int64_t pairs;    ///< teams of a workgroup
  int64_t v, scores, weights, factors, total;
};

AttentionMatrixShape shape_of(const ForwardLayout& l) {
  return {l.pairs * 32, l.pairs * l.team * 32, l.total * 16};
}

void write_forward_places(WgslWriter& w, const ForwardLayout& l, bool capped) {
  w.line("  let pair = sg / {}u;", l.team);
  w.line("  let side = sg % 2u;");
  w.line("  let own_row = sg / 2u % {}u * 16u;  // the subgroup's first query of the products",
         l.team / 2);
  w.line("  let pair_first = first + pair * 32u;");
  w.line("  let row = sg % {0}u * {1}u + lane % {1}u;", l.team, 32 / l.team);
  w.line("  let part = lane / {}u;", 32 / l.team);
  w.line("  let query = pair_first + row;");
  w.line("  let strip = {}u + pair * {}u;", l.scores, 32 * kScoreRow);
  w.line("  let my_scores = strip + row * {}u + part * {}u;", kScoreRow, l.vectors);
  w.line("  let weight_strip = {}u + pair * {}u;", l.weights, 32 * kWeightRow);
  w.line("  let my_weights = weight_strip + row * {}u + part * {}u;", kWeightRow, l.vectors / 2);
  w.line("  let own_strip = strip + own_row * {}u + side * 4u;", kScoreRow);
  w.line("  let own_block = own_strip + (lane % 16u) * {}u + lane / 16u * 2u;", kScoreRow);
  w.line("  let row_factors = {}u + pair * 8u;", l.factors);
  w.line("  let own_factors = row_factors + (own_row + lane % 16u) / 4u;");
  w.line("  let begin = first_key(min(query, last_query));");
  w.line("  let end = select(0u, query + params.query_offset + 1u, is_own(query));");
  w.line("  // Tiles before this key or past the first query need a mask.");
  w.line("  let unmasked_begin = first_key(min(pair_first + 31u, last_query));");
  w.line("  let unmasked_end = pair_first + params.query_offset + 1u;");
  if (capped) {
    write_cap_factors(w);
  } else {
    w.line("  // Scores this small are 0 all the same; so the next two stay within f32.");
    w.line("  let to_log2 = max(params.scale_log2e * factors[0].y * factors[1].y, 1e-30);");
  }
  w.line(
      "  // A product that is masked, and the reference of a row that has seen no key: far below "
      "all");
  w.line("  // others, and half of the first.");
  w.line("  let unseen = select(-3e30 / to_log2, -3e38, to_log2 < 1e-8);");
  w.line("  let not_started = unseen * to_log2 * 0.5;");
}

void write_forward_queries(WgslWriter& w, const ForwardLayout& l) {
  w.line("  // The queries' fragments, 16 rows of each pair at a time through workgroup memory.");
  if (l.wide()) {
    for (int64_t d = 0; d < l.steps(); ++d) {
      w.line("  var q0_{} = subgroup_matrix_left<f16, 16, 16>();", d);
    }
  }
  for (int s = 0; s < 2; ++s) {
    w.line("  workgroupBarrier();");
    w.line("  for (var e = t % {0}u; e < {1}u; e += {0}u) {{", 32 * l.team, 16 * l.units);
    w.line("    let r = e / {}u;", l.units);
    w.line(
        "    sm[pair * {}u + r * {}u + e % {}u] = q[(min(pair_first + {}u + r, last_query) * "
        "params.heads + head) * {}u + e % {}u];",
        16 * l.row, l.row, l.units, 16 * s, l.units, l.units);
    w.line("  }}");
    w.line("  workgroupBarrier();");
    if (l.wide()) w.line("  if (own_row == {}u) {{", 16 * s);
    for (int64_t d = 0; d < l.steps(); ++d) {
      w.line("  {} = {};", l.wide() ? fmt::format("q0_{}", d) : fmt::format("let q{}_{}", s, d),
             load_matrix("left", "row_major", fmt::format("pair * {}u + {}u", 16 * l.row, d * 2),
                         l.row));
    }
    if (l.wide()) w.line("  }}");
  }
  w.line("  workgroupBarrier();");
}

void write_forward_scores(WgslWriter& w, const ForwardLayout& l) {
  for (int s = 0; s < l.blocks; ++s) w.line("    s{} = {}();", s, kResult);
  for (int64_t d = 0; d < l.steps(); ++d) {
    w.line("    {{ let kf = {};",
           load_matrix("right", "col_major", fmt::format("side * {}u + {}u", 16 * l.row, d * 2),
                       l.row));
    for (int s = 0; s < l.blocks; ++s) {
      w.line("      s{0} = subgroupMatrixMultiplyAccumulate(q{0}_{1}, kf, s{0});", s, d);
    }
    w.line("    }}");
  }
}

void write_forward_store_scores(WgslWriter& w, const ForwardLayout& l) {
  for (int s = 0; s < l.blocks; ++s) {
    w.line("    subgroupMatrixStore<row_major>(&sm, own_strip + {}u, s{}, {}u);",
           s * 16 * kScoreRow, s, kScoreRow);
  }
}

void write_forward_softmax(WgslWriter& w, const ForwardLayout& l, bool capped) {
  w.line("    // The softmax of this tile beside the scores of the next.");
  for (int i = 0; i < l.vectors; ++i) {
    w.line("    var x{} = {};", i, score_text(capped, fmt::format("four(my_scores + {}u)", i)));
  }
  w.line("    if (kb < unmasked_begin || kb + {}u > unmasked_end) {{", kTile);
  w.line("      let my_key = kb + part * {}u;", 4 * l.vectors);
  write_mask(w, "x", static_cast<int>(l.vectors), "my_key", "vec4<f32>(unseen)", "begin", "end");
  w.line("    }}");
  w.line("    let highest4 = {};", l.wide() ? "max(x0, x1)" : "max(max(x0, x1), max(x2, x3))");
  w.line("    var highest = max(max(highest4.x, highest4.y), max(highest4.z, highest4.w));");
  if (l.wide()) w.line("    highest = max(highest, subgroupShuffleXor(highest, 8u));");
  w.line("    highest = max(highest, subgroupShuffleXor(highest, 16u)) * to_log2;");
  w.line(
      "    // The reference moves only when the maximum grew by more than 8: weights stay below "
      "256.");
  w.line("    var factor = 1.0;");
  w.line("    if (highest > top + 8.0) {{");
  w.line("      factor = select(exp2(top - highest), 1.0, top <= not_started);");
  w.line("      top = highest;");
  w.line("      total *= factor;");
  w.line("    }}");
  write_forward_scores(w, l);
  w.line("    if (part == 0u) {{ sm[row_factors + row / 4u][row % 4u] = bitcast<u32>(factor); }}");
  for (int i = 0; i < l.vectors; ++i)
    w.line("    x{0} = exp2(fma(x{0}, vec4<f32>(to_log2), vec4<f32>(-top)));", i);
  w.line("    let sum4 = {};", l.wide() ? "x0 + x1" : "(x0 + x1) + (x2 + x3)");
  w.line("    total += (sum4.x + sum4.y) + (sum4.z + sum4.w);");
  w.line("    sm[my_weights] = packed(x0, x1);");
  if (!l.wide()) w.line("    sm[my_weights + 1u] = packed(x2, x3);");
}

void write_forward_rescale(WgslWriter& w, const ForwardLayout& l) {
  w.line(
      "    // Rows whose reference moved (rare): the blocks of sums pass through this subgroup's");
  w.line("    // part of the strip, where a lane multiplies its row.");
  w.line("    if (subgroupAny(sm[row_factors + lane / 4u][lane % 4u] != bitcast<u32>(1.0))) {{");
  for (int s = 0; s < l.blocks; ++s) {
    w.line("      let a{} = bitcast<f32>(sm[own_factors + {}u][lane % 4u]);", s, 4 * s);
    for (int64_t n = 0; n < l.half(); ++n) {
      w.line("      subgroupMatrixStore<row_major>(&sm, own_strip, o{}_{}, {}u);", s, n, kScoreRow);
      for (int e = 0; e < 2; ++e) {
        w.line("      sm[own_block + {0}u] = bitcast<vec4<u32>>(four(own_block + {0}u) * a{1});", e,
               s);
      }
      w.line("      o{}_{} = subgroupMatrixLoad<{}, row_major>(&sm, own_strip, {}u);", s, n,
             kResult, kScoreRow);
    }
  }
  w.line("    }}");
}

void write_forward_values(WgslWriter& w, const ForwardLayout& l) {
  for (int kk = 0; kk < 2; ++kk) {
    for (int s = 0; s < l.blocks; ++s) {
      w.line("    let p{}_{} = {};", s, kk,
             load_matrix("left", "row_major",
                         fmt::format("weight_strip + own_row * {}u + {}u", kWeightRow,
                                     s * 16 * kWeightRow + kk * 2),
                         kWeightRow));
    }
    for (int64_t n = 0; n < l.half(); ++n) {
      w.line(
          "    {{ let vf = {};",
          load_matrix("right", "row_major",
                      fmt::format("{}u + side * {}u", l.v + kk * 16 * l.row + n * 2, l.units / 2),
                      l.row));
      for (int s = 0; s < l.blocks; ++s) {
        w.line("      o{0}_{1} = subgroupMatrixMultiplyAccumulate(p{0}_{2}, vf, o{0}_{1});", s, n,
               kk);
      }
      w.line("    }}");
    }
  }
}

void write_forward_results(WgslWriter& w, const ForwardLayout& l) {
  if (l.wide()) w.line("  total += subgroupShuffleXor(total, 8u);");
  w.line("  total += subgroupShuffleXor(total, 16u);");
  w.line("  if (part == 0u) {{");
  w.line("    let inverse = select(0.0, factors[2].y / total, total > 0.0);");
  w.line("    sm[row_factors + row / 4u][row % 4u] = bitcast<u32>(inverse);");
  w.line("    if (is_own(query)) {{");
  w.line("      logsumexp[query * params.heads + head] = (top + log2(max(total, 1e-38))) * LN_2;");
  w.line("    }}");
  w.line("  }}");
  w.line("  workgroupBarrier();");
  for (int s = 0; s < l.blocks; ++s) {
    w.line("  let i{} = bitcast<f32>(sm[own_factors + {}u][lane % 4u]);", s, 4 * s);
    w.line("  let g{} = pair_first + own_row + {}u + lane % 16u;", s, 16 * s);
    for (int64_t n = 0; n < l.half(); ++n) {
      w.line("  subgroupMatrixStore<row_major>(&sm, own_strip, o{}_{}, {}u);", s, n, kScoreRow);
      w.line("  workgroupBarrier();");
      w.line("  if (is_own(g{})) {{", s);
      w.line("    let unit = side * {}u + {}u + lane / 16u * 2u;", l.dim / 8, n * 4);
      for (int e = 0; e < 2; ++e) {
        w.line(
            "    if (unit + {0}u < UNITS) {{ store_out(g{1} * params.heads + head, unit + {0}u, "
            "four(own_block + {0}u) * i{1}); }}",
            e, s);
      }
      w.line("  }}");
      w.line("  workgroupBarrier();");
    }
  }
}

}  // namespace

AttentionMatrixShape forward_shape(int64_t packed_dim) {
  return shape_of(ForwardLayout(packed_dim));
}

std::string forward_source(int64_t packed_dim, bool capped) {
  const ForwardLayout l(packed_dim);
  const AttentionMatrixShape shape = shape_of(l);
  const Staging staging(l, shape.invocations);
  WgslWriter w;
  write_bindings(
      w, {{"q", "vec4<u32>"}, {"kv", "vec4<u32>"}, {"row_begin", "u32"}, {"factors", "vec2<f32>"}},
      {{"out", "Cell"}, {"logsumexp", "f32"}});
  write_common(w, l.total);
  write_query_head(w, shape);
  write_forward_places(w, l, capped);
  write_forward_queries(w, l);
  staging.write_lanes(w);
  for (const char* name : {"k", "v"}) staging.declare(w, name);
  const auto load = [&](const char* name, const char* cells, const std::string& at) {
    staging.load(w, name, "kv", cells, at, "last_key", "params.kv_heads", "kv_head");
  };
  load("k", "0u", "kb");
  staging.store(w, "k", 0);
  load("k", "0u", "kb + 32u");
  load("v", "v_base", "kb");
  for (int s = 0; s < l.blocks; ++s) {
    w.line("  var s{} = {}();", s, kResult);
    for (int64_t n = 0; n < l.half(); ++n) w.line("  var o{}_{} = {}();", s, n, kResult);
  }
  w.line("  var top = not_started;");
  w.line("  var total = 0.0;");
  w.line("  workgroupBarrier();");
  write_forward_scores(w, l);
  write_forward_store_scores(w, l);
  w.line("  workgroupBarrier();");
  staging.store(w, "k", 0);
  load("k", "0u", "kb + 64u");
  w.line("  workgroupBarrier();");
  // A step that the compiler does not know is faster for heads of 64, slower for heads of 128.
  w.line("  for (var tile = 0u; tile < tiles; tile {}) {{",
         l.dim == 64 ? "= tile * params.one + 1u" : "++");
  staging.store(w, "v", l.v);
  w.line("    let next = kb + {}u;", kTile);
  w.line("    if (next < keys_end) {{");
  load("v", "v_base", "next");
  w.line("    }}");
  write_forward_softmax(w, l, capped);
  w.line("    workgroupBarrier();");
  write_forward_rescale(w, l);
  staging.store(w, "k", 0);
  w.line("    if (next + 64u < keys_end) {{");
  load("k", "0u", "next + 64u");
  w.line("    }}");
  write_forward_values(w, l);
  write_forward_store_scores(w, l);
  w.line("    workgroupBarrier();");
  w.line("    kb = next;");
  w.line("  }}");
  write_forward_results(w, l);
  w.line("}}");
  return w.take();
}

}  // namespace wgrad::ops::attention_matrix
