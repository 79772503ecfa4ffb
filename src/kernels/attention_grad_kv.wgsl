// grad_v = p^T grad_out and grad_k = scale grad_s^T q, with p = exp(s - logsumexp) and
// grad_s = p (grad_out v^T - delta), summed over the query heads that share a key head in a fixed
// order. q, grad_out [tokens, heads, HEAD_DIM]; k, v, grad_k, grad_v [tokens, kv_heads, HEAD_DIM];
// row_end [tokens]; statistics [heads, tokens] of (logsumexp * log2(e), delta). Sets grad_k and
// grad_v. One workgroup: ROWS keys of one key head, queries in tiles of 32 that begin at multiples
// of 32. Equals cpu::attention_backward.

@group(0) @binding(0) var<storage, read> q: array<Cell>;
@group(0) @binding(1) var<storage, read> k: array<Cell>;
@group(0) @binding(2) var<storage, read> v: array<Cell>;
@group(0) @binding(3) var<storage, read> row_end: array<u32>;
@group(0) @binding(4) var<storage, read> statistics: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> grad_out: array<Cell>;
@group(0) @binding(6) var<storage, read_write> grad_k: array<Cell>;
@group(0) @binding(7) var<storage, read_write> grad_v: array<Cell>;
@group(0) @binding(8) var<uniform> params: Params;

fn load_row(product: u32, at: u32, unit: u32) -> vec4<f32> {
  if (product == 0u) { return load_k(at, unit); }
  return load_v(at, unit);
}
fn load_col(product: u32, at: u32, unit: u32) -> vec4<f32> {
  if (product == 0u) { return load_q(at, unit); }
  return load_grad_out(at, unit);
}
fn load_value(product: u32, at: u32, unit: u32) -> vec4<f32> {
  if (product == 0u) { return load_q(at, unit); }
  return load_grad_out(at, unit);
}

// One past the last query that sees the key.
fn last_query(key: u32) -> u32 {
  let end = min(row_end[key] - params.origin, params.queries);
  return select(end, min(end, key + params.window), params.window > 0u);
}

@compute @workgroup_size(256)
fn attention_grad_kv(@builtin(workgroup_id) group_id: vec3<u32>,
                     @builtin(num_workgroups) group_count: vec3<u32>,
                     @builtin(local_invocation_index) t: u32) {
  let group = group_id.x + group_id.y * group_count.x;
  if (group >= params.groups) { return; }
  let kv_head = group % params.kv_heads;
  let first = group / params.kv_heads * ROWS;
  let keys = Tokens(first, params.keys - 1u, params.kv_heads, kv_head);
  let group_heads = params.heads / params.kv_heads;

  var end: array<u32, SCORE_ROWS>;
  for (var i = 0u; i < SCORE_ROWS; i++) {
    let key = first + t / 8u + 32u * i;
    end[i] = select(0u, last_query(min(key, params.keys - 1u)), is_own(key));
  }
  var sum_k = Values();
  var sum_v = Values();
  let queries_end = last_query(min(first + ROWS, params.keys) - 1u);
  for (var head = kv_head * group_heads; head < (kv_head + 1u) * group_heads; head++) {
    for (var tile = first; tile < queries_end; tile += COLS) {
      let queries = Tokens(tile, params.queries - 1u, params.heads, head);
      var score: Scores;
      let grad_p = scores(2u, keys, queries, t, &score);
      let lane = 4u * (t % 8u);
      let s0 = statistics[statistic_at(queries, lane)];
      let s1 = statistics[statistic_at(queries, lane + 1u)];
      let s2 = statistics[statistic_at(queries, lane + 2u)];
      let s3 = statistics[statistic_at(queries, lane + 3u)];
      let query = vec4<u32>(tile + lane) + vec4<u32>(0u, 1u, 2u, 3u);
      var grad_s: Scores;
      for (var i = 0u; i < SCORE_ROWS; i++) {
        let key = first + t / 8u + 32u * i;
        let seen = (query >= vec4<u32>(key)) & (query < vec4<u32>(end[i]));
        let s = log2_scores(score[i]);
        let p = select(vec4<f32>(), exp2(s - vec4<f32>(s0.x, s1.x, s2.x, s3.x)), seen);
        grad_s[i] = uncapped_grad(p * (grad_p[i] - vec4<f32>(s0.y, s1.y, s2.y, s3.y)), s);
        store_weights(i, t, p);
      }
      accumulate(1u, queries, t, &sum_v);
      for (var i = 0u; i < SCORE_ROWS; i++) { store_weights(i, t, grad_s[i]); }
      accumulate(0u, queries, t, &sum_k);
    }
  }
  for (var i = 0u; i < VALUE_ROWS; i++) {
    let row = t / VALUE_LANES + i * VALUE_ROW_STEP;
    if (!is_own(first + row)) { continue; }
    for (var j = 0u; j < VALUE_UNITS; j++) {
      let unit = t % VALUE_LANES + j * VALUE_LANES;
      if (unit < UNITS) {
        store_grad_k(cell(keys, row), unit, sum_k[i * VALUE_UNITS + j] * params.scale);
        store_grad_v(cell(keys, row), unit, sum_v[i * VALUE_UNITS + j]);
      }
    }
  }
}
