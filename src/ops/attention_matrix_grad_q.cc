#include <fmt/format.h>

#include "ops/attention_matrix_text.h"

namespace wgrad::ops::attention_matrix {
namespace {

/// A subgroup owns 16 queries; a lane takes half a row of its scores.
struct GradQLayout : Layout {
  explicit GradQLayout(int64_t packed_dim)
      : Layout(packed_dim),
        v(kTile * row),
        strips(2 * kTile * row),
        strip(16 * kScoreRow),
        total(strips + kSubgroups * 2 * strip) {}
  static constexpr int64_t kSubgroups = 4;
  int64_t v, strips, strip, total;
};

AttentionMatrixShape shape_of(const GradQLayout& l) {
  return {l.kSubgroups * 16, l.kSubgroups * 32, l.total * 16};
}

void write_grad_q_places(WgslWriter& w, const GradQLayout& l, bool capped) {
  w.line("  let row = lane % 16u;");
  w.line("  let part = lane / 16u;");
  w.line("  let sg_first = first + sg * 16u;");
  w.line("  let query = sg_first + row;");
  w.line("  let strip = {}u + sg * {}u;", l.strips, 2 * l.strip);
  w.line("  let my_scores = strip + row * {}u + part * 4u;", kScoreRow);
  w.line("  let begin = first_key(min(query, last_query));");
  w.line("  let end = select(0u, query + 1u, is_own(query));");
  w.line("  let unmasked_begin = first_key(min(sg_first + 15u, last_query));");
  w.line("  let unmasked_end = select(0u, sg_first + 1u, is_own(sg_first));");
  w.line("  let own = statistics[head * params.queries + min(query, last_query)];");
  write_grad_factors(w, capped);
  w.line("  let delta = own.y * factors[3].x * factors[2].x;");
}

void write_grad_q_queries(WgslWriter& w, const GradQLayout& l) {
  for (const char* name : {"q", "d"}) {
    w.line("  workgroupBarrier();");
    w.line("  for (var e = lane; e < {}u; e += 32u) {{", 16 * l.units);
    w.line("    let r = e / {}u;", l.units);
    w.line(
        "    sm[sg * {}u + r * {}u + e % {}u] = {}[(min(sg_first + r, last_query) * params.heads + "
        "head) * {}u + e % {}u];",
        16 * l.row, l.row, l.units, *name == 'q' ? "q" : "grad_out", l.units, l.units);
    w.line("  }}");
    w.line("  workgroupBarrier();");
    for (int64_t d = 0; d < l.steps(); ++d) {
      w.line("  let {}_{} = {};", name, d,
             load_matrix("left", "row_major", fmt::format("sg * {}u + {}u", 16 * l.row, d * 2),
                         l.row));
    }
  }
  w.line("  workgroupBarrier();");
}

void write_grad_q_products(WgslWriter& w, const GradQLayout& l) {
  for (int n = 0; n < 2; ++n) w.line("    var s{0} = {1}(); var e{0} = {1}();", n, kResult);
  for (int64_t d = 0; d < l.steps(); ++d) {
    for (int64_t n = 0; n < 2; ++n) {
      const int64_t at = n * 16 * l.row + d * 2;
      w.line("    {{ let kf = {};",
             load_matrix("right", "col_major", fmt::format("{}u", at), l.row));
      w.line("      let vf = {};",
             load_matrix("right", "col_major", fmt::format("{}u", l.v + at), l.row));
      w.line("      s{0} = subgroupMatrixMultiplyAccumulate(q_{1}, kf, s{0});", n, d);
      w.line("      e{0} = subgroupMatrixMultiplyAccumulate(d_{1}, vf, e{0}); }}", n, d);
    }
  }
  for (int64_t n = 0; n < 2; ++n) {
    w.line("    subgroupMatrixStore<row_major>(&sm, strip + {}u, s{}, {}u);", n * 4, n, kScoreRow);
    w.line("    subgroupMatrixStore<row_major>(&sm, strip + {}u, e{}, {}u);", l.strip + n * 4, n,
           kScoreRow);
  }
}

void write_grad_q_scores(WgslWriter& w, const GradQLayout& l, bool capped) {
  for (int i = 0; i < 4; ++i) {
    std::string score = score_text(capped, fmt::format("four(my_scores + {}u)", i));
    if (capped) {
      w.line("    let c{} = {};", i, score);
      score = fmt::format("c{}", i);
    }
    w.line("    var x{} = exp2({} * to_log2 - vec4<f32>(own.x));", i, score);
  }
  w.line("    if (kb < unmasked_begin || kb + {}u > unmasked_end) {{", kTile);
  w.line("      let my_key = kb + part * 16u;");
  write_mask(w, "x", 4, "my_key", "vec4<f32>()", "begin", "end");
  w.line("    }}");
  for (int i = 0; i < 4; ++i) {
    w.line("    x{0} *= (four(my_scores + {1}u) - vec4<f32>(delta)) * 0x1p-16;", i, l.strip + i);
    if (capped) w.line("    x{0} *= tanh_slope(c{0});", i);
  }
  w.line("    sm[my_scores] = packed(x0, x1);");
  w.line("    sm[my_scores + 1u] = packed(x2, x3);");
}

void write_grad_q_sums(WgslWriter& w, const GradQLayout& l) {
  for (int64_t kk = 0; kk < 2; ++kk) {
    w.line("    let p{} = {};", kk,
           load_matrix("left", "row_major", fmt::format("strip + {}u", kk * 4), kScoreRow));
    for (int64_t n = 0; n < l.steps(); ++n) {
      w.line("    {{ let kf = {};",
             load_matrix("right", "row_major", fmt::format("{}u", kk * 16 * l.row + n * 2), l.row));
      w.line("      a{0} = subgroupMatrixMultiplyAccumulate(p{1}, kf, a{0}); }}", n, kk);
    }
  }
}

void write_grad_q_results(WgslWriter& w, const GradQLayout& l) {
  w.line("  let result = params.scale * factors[1].y;");
  for (int64_t n = 0; n < l.steps(); n += 2) {
    for (int64_t e = 0; e < 2; ++e) {
      w.line("  subgroupMatrixStore<row_major>(&sm, strip + {}u, a{}, {}u);", e * 4, n + e,
             kScoreRow);
    }
    w.line("  workgroupBarrier();");
    w.line("  if (is_own(query)) {{");
    for (int64_t i = 0; i < 4; ++i) {
      w.line(
          "    if (part * 4u + {0}u < UNITS) {{ store_grad_q(query * params.heads + head, part * "
          "4u + {0}u, four(my_scores + {1}u) * result * grad_unit); }}",
          n * 4 + i, i);
    }
    w.line("  }}");
    w.line("  workgroupBarrier();");
  }
}

}  // namespace

AttentionMatrixShape grad_q_shape(int64_t packed_dim) { return shape_of(GradQLayout(packed_dim)); }

std::string grad_q_source(int64_t packed_dim, bool capped) {
  const GradQLayout l(packed_dim);
  const AttentionMatrixShape shape = shape_of(l);
  const Staging staging(l, shape.invocations);
  WgslWriter w;
  write_bindings(w,
                 {{"q", "vec4<u32>"},
                  {"kv", "vec4<u32>"},
                  {"grad_out", "vec4<u32>"},
                  {"row_begin", "u32"},
                  {"statistics", "vec2<f32>"},
                  {"factors", "vec2<f32>"}},
                 {{"grad_q", "Cell"}});
  write_common(w, l.total);
  write_query_head(w, shape);
  write_grad_q_places(w, l, capped);
  write_grad_q_queries(w, l);
  staging.write_lanes(w);
  for (const char* name : {"k", "v"}) staging.declare(w, name);
  const auto load = [&](const char* at) {
    staging.load(w, "k", "kv", "0u", at, "last_key", "params.kv_heads", "kv_head");
    staging.load(w, "v", "kv", "v_base", at, "last_key", "params.kv_heads", "kv_head");
  };
  load("kb");
  staging.store(w, "k", 0);
  staging.store(w, "v", l.v);
  w.line("  workgroupBarrier();");
  for (int64_t n = 0; n < l.steps(); ++n) w.line("  var a{} = {}();", n, kResult);
  w.line("  for (var tile = 0u; tile < tiles; tile++) {{");
  write_grad_q_products(w, l);
  w.line("    let next = kb + {}u;", kTile);
  w.line("    if (next < keys_end) {{");
  load("next");
  w.line("    }}");
  w.line("    workgroupBarrier();");
  write_grad_q_scores(w, l, capped);
  staging.store(w, "v", l.v);
  w.line("    workgroupBarrier();");
  write_grad_q_sums(w, l);
  w.line("    workgroupBarrier();");
  staging.store(w, "k", 0);
  w.line("    kb = next;");
  w.line("    workgroupBarrier();");
  w.line("  }}");
  write_grad_q_results(w, l);
  w.line("}}");
  return w.take();
}

}  // namespace wgrad::ops::attention_matrix
