// grad_q = scale grad_s k with p = exp(s - logsumexp), grad_s = p (grad_out v^T - delta).
// q, grad_out, grad_q [tokens, heads, HEAD_DIM]; k, v [tokens, kv_heads, HEAD_DIM]; row_begin
// [tokens]; statistics [heads, tokens] of (logsumexp * log2(e), delta). Sets grad_q. One workgroup:
// ROWS queries of one head, keys in tiles of 32. Equals cpu::attention_backward.

@group(0) @binding(0) var<storage, read> q: array<Cell>;
@group(0) @binding(1) var<storage, read> k: array<Cell>;
@group(0) @binding(2) var<storage, read> v: array<Cell>;
@group(0) @binding(3) var<storage, read> row_begin: array<u32>;
@group(0) @binding(4) var<storage, read> statistics: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> grad_out: array<Cell>;
@group(0) @binding(6) var<storage, read_write> grad_q: array<Cell>;
@group(0) @binding(7) var<uniform> params: Params;

fn load_row(product: u32, at: u32, unit: u32) -> vec4<f32> {
  if (product == 0u) { return load_q(at, unit); }
  return load_grad_out(at, unit);
}
fn load_col(product: u32, at: u32, unit: u32) -> vec4<f32> {
  if (product == 0u) { return load_k(at, unit); }
  return load_v(at, unit);
}
fn load_value(product: u32, at: u32, unit: u32) -> vec4<f32> { return load_k(at, unit); }

@compute @workgroup_size(256)
fn attention_grad_q(@builtin(workgroup_id) group_id: vec3<u32>,
                    @builtin(num_workgroups) group_count: vec3<u32>,
                    @builtin(local_invocation_index) t: u32) {
  let group = group_id.x + group_id.y * group_count.x;
  if (group >= params.groups) { return; }
  let head = group % params.heads;
  let first = (params.groups / params.heads - 1u - group / params.heads) * ROWS;
  let queries = Tokens(first, params.queries - 1u, params.heads, head);
  let kv_head = head / (params.heads / params.kv_heads);

  var begin: array<u32, SCORE_ROWS>;
  var end: array<u32, SCORE_ROWS>;
  var row: array<vec2<f32>, SCORE_ROWS>;
  for (var i = 0u; i < SCORE_ROWS; i++) {
    let query = first + t / 8u + 32u * i;
    begin[i] = first_key(min(query, params.queries - 1u));
    end[i] = select(0u, query + 1u, is_own(query));
    row[i] = statistics[statistic_at(queries, t / 8u + 32u * i)];
  }
  var sum = Values();
  let keys_end = min(first + ROWS, params.queries);
  for (var tile = first_key(max(first, params.first_token)) / COLS * COLS; tile < keys_end; tile += COLS) {
    let keys = Tokens(tile, params.keys - 1u, params.kv_heads, kv_head);
    var score: Scores;
    let grad_p = scores(2u, queries, keys, t, &score);
    let key = vec4<u32>(tile + 4u * (t % 8u)) + vec4<u32>(0u, 1u, 2u, 3u);
    for (var i = 0u; i < SCORE_ROWS; i++) {
      let seen = (key >= vec4<u32>(begin[i])) & (key < vec4<u32>(end[i]));
      let s = log2_scores(score[i]);
      let p = exp2(s - row[i].x);
      let grad_s = uncapped_grad(p * (grad_p[i] - row[i].y), s);
      store_weights(i, t, select(vec4<f32>(), grad_s, seen));
    }
    accumulate(0u, keys, t, &sum);
  }
  for (var i = 0u; i < VALUE_ROWS; i++) {
    let at = t / VALUE_LANES + i * VALUE_ROW_STEP;
    if (!is_own(first + at)) { continue; }
    for (var j = 0u; j < VALUE_UNITS; j++) {
      let unit = t % VALUE_LANES + j * VALUE_LANES;
      if (unit < UNITS) {
        store_grad_q(cell(queries, at), unit, sum[i * VALUE_UNITS + j] * params.scale);
      }
    }
  }
}
