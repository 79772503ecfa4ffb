// attention_forward for few queries and many keys: attention_decode works on 256 keys a workgroup,
// attention_combine joins the parts of a query's head in the order of the keys.
// Layouts as in attention_forward.wgsl; the parts of query head h of query i with S splits lie at
// (i * heads + h) * S: part_sum [.., UNITS] is the sum of exp2(x - top) v, part_total (top, sum of
// exp2(x - top)) with x the score times log2(e). A part that sees no key has total 0 and no sum.

@group(0) @binding(0) var<storage, read> q: array<Cell>;
@group(0) @binding(1) var<storage, read> k: array<Cell>;
@group(0) @binding(2) var<storage, read> v: array<Cell>;
@group(0) @binding(3) var<storage, read> row_begin: array<u32>;
@group(0) @binding(4) var<storage, read_write> part_sum: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> part_total: array<vec2<f32>>;
@group(0) @binding(6) var<uniform> params: Params;

const KEYS: u32 = 256u;
// Scores: so many neighbouring invocations read a key together, and so many keys at a time.
const KEY_LANES: u32 = 8u;
const KEYS_AT_ONCE: u32 = 256u / KEY_LANES;
const KEY_ROUNDS: u32 = KEYS / KEYS_AT_ONCE;
const PART_STRIDE: u32 = KEY_LANES + 1u;  // odd: no bank is met twice
// Rows of values on their way at once.
const ROWS_AHEAD: u32 = 8u;

var<workgroup> query_units: array<vec4<f32>, UNITS>;
var<workgroup> score_parts: array<f32, KEYS * PART_STRIDE>;
var<workgroup> weight: array<f32, KEYS>;
var<workgroup> reduced: array<f32, 16>;
var<workgroup> sums: array<vec4<f32>, 256>;

@compute @workgroup_size(256)
fn attention_decode(@builtin(workgroup_id) group_id: vec3<u32>,
                    @builtin(num_workgroups) group_count: vec3<u32>,
                    @builtin(local_invocation_index) t: u32) {
  let group = group_id.x + group_id.y * group_count.x;
  if (group >= params.groups) { return; }
  let query_cell = group / params.splits;
  let query = query_cell / params.heads;
  let kv_head = query_cell % params.heads / (params.heads / params.kv_heads);
  let first = group % params.splits * KEYS;
  let begin = first_key(query);
  let end = min(query + params.query_offset + 1u, params.keys);
  if (first >= end || first + KEYS <= begin) {
    if (t == 0u) { part_total[group] = vec2<f32>(LOWEST, 0.0); }
    return;
  }
  if (t < UNITS) { query_units[t] = load_q(query_cell, t); }
  workgroupBarrier();

  var parts: array<f32, KEY_ROUNDS>;
  let key_lane = t % KEY_LANES;
  for (var unit = key_lane; unit < UNITS * params.one; unit += KEY_LANES) {
    var cells: array<vec4<f32>, KEY_ROUNDS>;
    for (var r = 0u; r < KEY_ROUNDS; r++) {
      let key = min(first + r * KEYS_AT_ONCE + t / KEY_LANES, end - 1u);
      cells[r] = load_k(key * params.kv_heads + kv_head, unit);
    }
    for (var r = 0u; r < KEY_ROUNDS; r++) { parts[r] += dot(query_units[unit], cells[r]); }
  }
  for (var r = 0u; r < KEY_ROUNDS; r++) {
    score_parts[(r * KEYS_AT_ONCE + t / KEY_LANES) * PART_STRIDE + key_lane] = parts[r];
  }
  workgroupBarrier();
  let key = first + t;
  let seen = key >= begin && key < end;
  var score = LOWEST;
  if (seen) {
    var sum = 0.0;
    for (var i = 0u; i < KEY_LANES; i++) { sum += score_parts[t * PART_STRIDE + i]; }
    score = log2_scores(vec4<f32>(sum)).x;
  }
  // Sixteen parts, then their join: two barriers, in an order that is always the same.
  weight[t] = score;
  workgroupBarrier();
  if (t < 16u) {
    var highest = LOWEST;
    for (var i = t; i < KEYS * params.one; i += 16u) { highest = max(highest, weight[i]); }
    reduced[t] = highest;
  }
  workgroupBarrier();
  var top = LOWEST;
  for (var i = 0u; i < 16u * params.one; i++) { top = max(top, reduced[i]); }
  weight[t] = select(0.0, exp2(score - top), seen);
  workgroupBarrier();
  if (t < 16u) {
    var sum = 0.0;
    for (var i = t; i < KEYS * params.one; i += 16u) { sum += weight[i]; }
    reduced[t] = sum;
  }
  workgroupBarrier();
  if (t == 0u) {
    var total = 0.0;
    for (var i = 0u; i < 16u * params.one; i++) { total += reduced[i]; }
    part_total[group] = vec2<f32>(top, total);
  }

  let lane = t % VALUE_LANES;
  let last = min(KEYS, end - first);
  for (var j = 0u; j < VALUE_UNITS; j++) {
    let unit = lane + j * VALUE_LANES;
    var sum = vec4<f32>();
    if (unit < UNITS) {
      var i = max(begin, first) - first + t / VALUE_LANES;
      for (; i + (ROWS_AHEAD - 1u) * VALUE_ROW_STEP < last; i += ROWS_AHEAD * VALUE_ROW_STEP) {
        var cells: array<vec4<f32>, ROWS_AHEAD>;
        for (var r = 0u; r < ROWS_AHEAD; r++) {
          cells[r] = load_v((first + i + r * VALUE_ROW_STEP) * params.kv_heads + kv_head, unit);
        }
        for (var r = 0u; r < ROWS_AHEAD; r++) { sum += weight[i + r * VALUE_ROW_STEP] * cells[r]; }
      }
      for (; i < last; i += VALUE_ROW_STEP) {
        sum += weight[i] * load_v((first + i) * params.kv_heads + kv_head, unit);
      }
    }
    sums[t] = sum;
    workgroupBarrier();
    if (t < VALUE_LANES && unit < UNITS) {
      for (var i = 1u; i < VALUE_ROW_STEP * params.one; i++) { sum += sums[t + i * VALUE_LANES]; }
      part_sum[group * UNITS + unit] = sum;
    }
    workgroupBarrier();
  }
}
