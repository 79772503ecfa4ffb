// out = softmax(scores) v with scores = scale q k^T, capped by some kernels, over the keys a query sees, with the running softmax of Dao (2023).
// q, out [queries, heads, HEAD_DIM]; k, v [keys, kv_heads, HEAD_DIM]; row_begin [queries]; logsumexp
// [queries, heads], natural logarithm. Sets out and logsumexp. One workgroup: ROWS queries of one
// head, keys in tiles of 32 that begin at multiples of 32. Equals cpu::attention_forward.

@group(0) @binding(0) var<storage, read> q: array<Cell>;
@group(0) @binding(1) var<storage, read> k: array<Cell>;
@group(0) @binding(2) var<storage, read> v: array<Cell>;
@group(0) @binding(3) var<storage, read> row_begin: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<Cell>;
@group(0) @binding(5) var<storage, read_write> logsumexp: array<f32>;
@group(0) @binding(6) var<uniform> params: Params;

var<workgroup> row_values: array<f32, ROWS>;

fn load_row(product: u32, at: u32, unit: u32) -> vec4<f32> { return load_q(at, unit); }
fn load_col(product: u32, at: u32, unit: u32) -> vec4<f32> { return load_k(at, unit); }
fn load_value(product: u32, at: u32, unit: u32) -> vec4<f32> { return load_v(at, unit); }

@compute @workgroup_size(256)
fn attention_forward(@builtin(workgroup_id) group_id: vec3<u32>,
                     @builtin(num_workgroups) group_count: vec3<u32>,
                     @builtin(local_invocation_index) t: u32) {
  let group = group_id.x + group_id.y * group_count.x;
  if (group >= params.groups) { return; }
  let head = group % params.heads;
  // The last tiles see the most keys: they start first.
  let first = (params.groups / params.heads - 1u - group / params.heads) * ROWS;
  let queries = Tokens(first, params.queries - 1u, params.heads, head);
  let kv_head = head / (params.heads / params.kv_heads);

  var begin: array<u32, SCORE_ROWS>;
  var end: array<u32, SCORE_ROWS>;
  var top: array<f32, SCORE_ROWS>;    // running maximum of scale * log2(e) * score
  var total: array<f32, SCORE_ROWS>;  // this lane's columns of the running sum
  for (var i = 0u; i < SCORE_ROWS; i++) {
    let query = first + t / 8u + 32u * i;
    begin[i] = first_key(min(query, params.queries - 1u));
    end[i] = select(0u, query + params.query_offset + 1u, is_own(query));
    top[i] = LOWEST;
  }
  var sum = Values();
  let keys_end = min(min(first + ROWS, params.queries) + params.query_offset, params.keys);
  for (var tile = first_key(max(first, params.first_token)) / COLS * COLS; tile < keys_end; tile += COLS) {
    let keys = Tokens(tile, params.keys - 1u, params.kv_heads, kv_head);
    var unused: Scores;
    var score = scores(1u, queries, keys, t, &unused);
    let key = vec4<u32>(tile + 4u * (t % 8u)) + vec4<u32>(0u, 1u, 2u, 3u);
    for (var i = 0u; i < SCORE_ROWS; i++) {
      score[i] = log2_scores(score[i]);
      let seen = (key >= vec4<u32>(begin[i])) & (key < vec4<u32>(end[i]));
      score[i] = select(vec4<f32>(LOWEST), score[i], seen);
      weights[(t / 8u + 32u * i) * 8u + t % 8u] =
          vec4<f32>(max(max(score[i].x, score[i].y), max(score[i].z, score[i].w)));
    }
    workgroupBarrier();
    for (var i = 0u; i < SCORE_ROWS; i++) {
      var highest = top[i];
      for (var lane = 0u; lane < 8u * params.one; lane++) {
        highest = max(highest, weights[(t / 8u + 32u * i) * 8u + lane].x);
      }
      let factor = exp2(top[i] - highest);
      top[i] = highest;
      let seen = (key >= vec4<u32>(begin[i])) & (key < vec4<u32>(end[i]));
      score[i] = select(vec4<f32>(), exp2(score[i] - highest), seen);
      total[i] = total[i] * factor + ((score[i].x + score[i].y) + (score[i].z + score[i].w));
      if (t % 8u == 0u) { row_values[t / 8u + 32u * i] = factor; }
    }
    workgroupBarrier();
    for (var i = 0u; i < SCORE_ROWS; i++) { store_weights(i, t, score[i]); }
    for (var i = 0u; i < VALUE_ROWS; i++) {
      let factor = row_values[t / VALUE_LANES + i * VALUE_ROW_STEP];
      for (var j = 0u; j < VALUE_UNITS; j++) { sum[i * VALUE_UNITS + j] *= factor; }
    }
    accumulate(0u, keys, t, &sum);
  }

  for (var i = 0u; i < SCORE_ROWS; i++) { store_weights(i, t, vec4<f32>(total[i])); }
  workgroupBarrier();
  for (var i = 0u; i < SCORE_ROWS; i++) {
    var row_total = 0.0;
    for (var lane = 0u; lane < 8u * params.one; lane++) {
      row_total += weights[(t / 8u + 32u * i) * 8u + lane].x;
    }
    let query = first + t / 8u + 32u * i;
    if (t % 8u == 0u) {
      row_values[t / 8u + 32u * i] = select(0.0, 1.0 / row_total, row_total > 0.0);
      if (is_own(query)) {
        logsumexp[query * params.heads + head] = (top[i] + log2(max(row_total, 1e-38))) * LN_2;
      }
    }
  }
  workgroupBarrier();
  for (var i = 0u; i < VALUE_ROWS; i++) {
    let row = t / VALUE_LANES + i * VALUE_ROW_STEP;
    if (!is_own(first + row)) { continue; }
    for (var j = 0u; j < VALUE_UNITS; j++) {
      let unit = t % VALUE_LANES + j * VALUE_LANES;
      if (unit < UNITS) {
        store_out(cell(queries, row), unit, sum[i * VALUE_UNITS + j] * row_values[row]);
      }
    }
  }
}
