#include <fmt/format.h>

#include "ops/attention_matrix_grad_kv.h"

namespace wgrad::ops::attention_matrix {
namespace {

/// A slot of the ring holds q, grad_out and the statistics of 16 queries.
struct RingLayout : Layout {
  RingLayout() : Layout(64) {}
  static constexpr int64_t kQueries = 16;
  static constexpr int64_t kScores = kQueries / 4 + 1;   ///< distance of rows of 16 f32
  static constexpr int64_t kWeights = kQueries / 8 + 1;  ///< distance of rows of 16 f16
  int64_t tile = kQueries * row;
  int64_t statistics = 2 * tile;
  int64_t slot = statistics + 2 * kQueries / 4;
  int64_t scores = 3 * slot;
  int64_t score_size = kGradKvKeys * kScores;
  int64_t weights = scores + 2 * score_size;
  int64_t weight_size = kGradKvKeys * kWeights;
  int64_t total = weights + 2 * weight_size;
};

void write_places(WgslWriter& w, const RingLayout& l) {
  w.line("  let my_scores = {}u + row * {}u + part;", l.scores, l.kScores);
  w.line("  let my_weights = {}u + row * {}u + part / 2u;", l.weights, l.kWeights);
  w.line("  let my_half = part % 2u * 2u;");
  w.line("  let product_in = role * {}u;", l.tile);
  w.line("  let product_out = {}u + role * {}u + (owned + side * 16u) * {}u;", l.scores,
         l.score_size, l.kScores);
  w.line("  let sum_left = {}u + role * {}u + owned * {}u;", l.weights, l.weight_size, l.kWeights);
  w.line("  let sum_right = (1u - role) * {}u + side * {}u;", l.tile, l.units / 2);
  w.line("  let tiles_end = first + tiles * {}u;", kTile);
  w.line("  let steps = tiles * {}u * group_heads;", kTile / l.kQueries);
  w.line("  let last_head = kv_head * group_heads + group_heads - 1u;");
  w.line("  // Half of the invocations load q, half grad_out, up to three steps ahead.");
  w.line("  let loads_q = t < 128u;");
  w.line("  let load_row = t % 128u / {}u;", l.units);
  w.line("  let load_unit = t % {}u;", l.units);
  w.line("  let load_slot = t / 128u * {}u + load_row * {}u + load_unit;", l.tile, l.row);
  w.line("  var load_head = kv_head * group_heads;");
  w.line("  var load_first = first;");
  w.line("  var loaded = vec4<u32>();");
}

/// Past the last step it loads what is not used.
void write_load(WgslWriter& w, const RingLayout& l) {
  w.line("    {{ let cell = min(load_first + load_row, last_query) * params.heads + load_head;");
  w.line("      let at = cell * {}u + load_unit;", l.units);
  w.line("      if (loads_q) {{ loaded = q[at]; }} else {{ loaded = grad_out[at]; }}");
  write_grad_kv_statistic(w, "load_head", "load_first", l.kQueries);
  w.line("      load_first += {}u;", l.kQueries);
  w.line("      if (load_first >= tiles_end) {{");
  w.line("        load_first = first;");
  w.line("        load_head = min(load_head + 1u, last_head);");
  w.line("      }} }}");
}

void write_store(WgslWriter& w, const RingLayout& l, const char* slot) {
  w.line("    sm[{} + load_slot] = loaded;", slot);
  w.line("    if (t < {}u) {{", 2 * l.kQueries);
  w.line("      sm[{} + {}u + t / 4u][t % 4u] = bitcast<u32>(statistic * statistic_factor);", slot,
         l.statistics);
  w.line("    }}");
}

void write_product(WgslWriter& w, const RingLayout& l, const char* slot) {
  w.line("    s = {}();", kResult);
  for (int64_t d = 0; d < l.steps(); ++d) {
    w.line("    s = subgroupMatrixMultiplyAccumulate(f0_{}, {}, s);", d,
           load_matrix("right", "col_major", fmt::format("{} + product_in + {}u", slot, d * 2),
                       l.row));
  }
}

void write_weights(WgslWriter& w, const RingLayout& l, bool keep, bool capped) {
  if (capped) w.line("    let capped = {};", score_text(capped, "x0"));
  w.line("    x0 = exp2(fma({}, vec4<f32>(to_log2), -logsumexp));", capped ? "capped" : "x0");
  // Not only for what it leaves out: without the branch, masked or not, the loop takes a fifth
  // longer on an H200.
  w.line("    if (tile_first < first + {}u || tile_first + {}u > unmasked_end) {{", kGradKvKeys,
         l.kQueries);
  write_mask(w, "x", 1, "tile_first + part * 4u", "vec4<f32>()", "key", "end");
  w.line("    }}");
  w.line("    let y = x0 * ((grad - delta) * 0x1p-16){};", capped ? " * tanh_slope(capped)" : "");
  w.line("    sm[my_weights][my_half] = pack2x16float(x0.xy);");
  w.line("    sm[my_weights][my_half + 1u] = pack2x16float(x0.zw);");
  w.line("    let grad_scores = vec2<u32>(pack2x16float(y.xy), pack2x16float(y.zw));");
  w.line("    sm[my_weights + {}u][my_half] = grad_scores.x;", l.weight_size);
  w.line("    sm[my_weights + {}u][my_half + 1u] = grad_scores.y;", l.weight_size);
  if (keep) w.line("    kept[keep_at] = grad_scores;");
}

void write_sums(WgslWriter& w, const RingLayout& l) {
  for (int64_t s = 0; s < 2; ++s) {
    w.line("    let p{} = {};", s,
           load_matrix("left", "row_major", fmt::format("sum_left + {}u", s * 16 * l.kWeights),
                       l.kWeights));
  }
  for (int64_t n = 0; n < l.half(); ++n) {
    w.line("    {{ let qf = {};",
           load_matrix("right", "row_major", fmt::format("slot0 + sum_right + {}u", n * 2), l.row));
    for (int s = 0; s < 2; ++s) {
      w.line("      a{0}_{1} = subgroupMatrixMultiplyAccumulate(p{0}, qf, a{0}_{1});", s, n);
    }
    w.line("    }}");
  }
}

void write_advance(WgslWriter& w, const RingLayout& l, bool keep) {
  // Two steps fill a kept tile of 32 queries: units 16 apart, of two elements each.
  if (keep) w.line("    keep_at += select(480u, 32u, (tile_first & {}u) == 0u);", l.kQueries);
  w.line("    tile_first += {}u;", l.kQueries);
  w.line("    if (tile_first >= tiles_end) {{");
  w.line("      tile_first = first;");
  if (keep) w.line("      keep_at += keep_head;");
  w.line("    }}");
  w.line("    let free = slot0;");
  w.line("    slot0 = slot1;");
  w.line("    slot1 = slot2;");
  w.line("    slot2 = free;");
}

}  // namespace

AttentionMatrixShape grad_kv_ring_shape() {
  return {kGradKvKeys, kGradKvSubgroups * 32, RingLayout().total * 16};
}

std::string grad_kv_ring_source(bool keep, bool capped) {
  const RingLayout l;
  WgslWriter w;
  write_grad_kv_bindings(w, keep ? "vec2<u32>" : nullptr);
  write_common(w, l.total);
  write_grad_kv_head(w, l, RingLayout::kQueries, capped);
  write_places(w, l);
  write_grad_kv_keys(w, l, 1, "owned + side * 16u");
  for (int s = 0; s < 2; ++s) {
    for (int64_t n = 0; n < l.half(); ++n) w.line("  var a{}_{} = {}();", s, n, kResult);
  }
  w.line("  var slot0 = 0u;");
  w.line("  var slot1 = {}u;", l.slot);
  w.line("  var slot2 = {}u;", 2 * l.slot);
  for (const char* slot : {"slot0", "slot1"}) {
    write_load(w, l);
    write_store(w, l, slot);
  }
  write_load(w, l);
  w.line("  var tile_first = first;");
  if (keep) {
    w.line("  var keep_at = kept_tile(kv_head * group_heads, first / 64u, first / 32u) * 512u +");
    w.line("                (sg * 32u + part / 2u * 8u + lane % 8u) * 2u + part % 2u;");
    w.line(
        "  let keep_head = (kept_of_head() - tiles) * 512u;  // from a head's last tile to the "
        "next");
  }
  w.line("  workgroupBarrier();");
  w.line("  var s = {}();", kResult);
  write_product(w, l, "slot0");
  w.line("  subgroupMatrixStore<row_major>(&sm, product_out, s, {}u);", l.kScores);
  w.line("  workgroupBarrier();");
  w.line("  for (var step = 0u; step < steps; step++) {{");
  w.line("    // The weights of this step beside the products of the next.");
  w.line("    var x0 = four(my_scores);");
  w.line("    let grad = four(my_scores + {}u);", l.score_size);
  w.line("    let logsumexp = four(slot0 + {}u + part);", l.statistics);
  w.line("    let delta = four(slot0 + {}u + part);", l.statistics + l.kQueries / 4);
  write_product(w, l, "slot1");
  write_weights(w, l, keep, capped);
  write_store(w, l, "slot2");
  write_load(w, l);
  w.line("    workgroupBarrier();");
  write_sums(w, l);
  w.line("    subgroupMatrixStore<row_major>(&sm, product_out, s, {}u);", l.kScores);
  write_advance(w, l, keep);
  w.line("    workgroupBarrier();");
  w.line("  }}");
  write_grad_kv_results(w, l);
  w.line("}}");
  return w.take();
}

}  // namespace wgrad::ops::attention_matrix
