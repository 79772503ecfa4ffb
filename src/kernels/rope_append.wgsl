// One token's heads on their way into attention: RMSNorm of each head of q and k (where NORM) or of
// all of q and all of k (where WHOLE too), the rotation of rope.wgsl in half-split pairs, and k and v
// into their rows of the cache.
//   x  f32: q [heads, head_dim] at q_offset; k and v [kv_heads, head_dim]
//   position u32 [1]; table [max_position, half, 2]; q_norm, k_norm f32 [head_dim], WHOLE: as q and k
//   turned  f32, q as attention takes it
//   keys, values  f32, the cache from the token's row on, [kv_heads, head_dim]
// A workgroup takes a head of q, k or v. Equal to cpu::rms_norm_forward, then cpu::rope_apply.

override NORM: bool = false;
override WHOLE: bool = false;

struct Params {
  heads: u32,
  kv_heads: u32,
  head_dim: u32,
  half: u32,  // pairs of a head that turn
  q_offset: u32,
  k_offset: u32,
  v_offset: u32,
  keys_offset: u32,
  values_offset: u32,
  max_position: u32,
  eps: f32,
  norm_add: f32,  // to each of the norms' weights
}

@group(0) @binding(0) var<storage, read> position: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> q_norm: array<f32>;
@group(0) @binding(3) var<storage, read> k_norm: array<f32>;
@group(0) @binding(4) var<storage, read> x: array<f32>;
@group(0) @binding(5) var<storage, read_write> turned: array<f32>;
@group(0) @binding(6) var<storage, read_write> keys: array<f32>;
@group(0) @binding(7) var<storage, read_write> values: array<f32>;
@group(0) @binding(8) var<uniform> params: Params;

const WIDTH: u32 = 64u;
var<workgroup> squares: array<f32, WIDTH>;

fn norm_factor(is_q: bool, head: u32, i: u32) -> f32 {
  if (!NORM) { return 1.0; }
  let at = select(i, head + i, WHOLE);
  if (is_q) { return q_norm[at] + params.norm_add; }
  return k_norm[at] + params.norm_add;
}

@compute @workgroup_size(64)
fn rope_append(@builtin(workgroup_id) group_id: vec3<u32>,
               @builtin(num_workgroups) group_count: vec3<u32>,
               @builtin(local_invocation_index) t: u32) {
  let group = group_id.x + group_id.y * group_count.x;
  if (group >= params.heads + 2u * params.kv_heads) { return; }
  let dim = params.head_dim;
  if (group >= params.heads + params.kv_heads) {
    let at = (group - params.heads - params.kv_heads) * dim;
    for (var i = t; i < dim; i += WIDTH) {
      values[params.values_offset + at + i] = x[params.v_offset + at + i];
    }
    return;
  }
  let is_q = group < params.heads;
  let head = select(group - params.heads, group, is_q) * dim;
  let base = head + select(params.k_offset, params.q_offset, is_q);

  var inv_rms = 1.0;
  if (NORM) {
    let first = select(base, base - head, WHOLE);
    let count = select(dim, dim * select(params.kv_heads, params.heads, is_q), WHOLE);
    var square = 0.0;
    for (var i = t; i < count; i += WIDTH) { square += x[first + i] * x[first + i]; }
    squares[t] = square;
    workgroupBarrier();
    square = 0.0;
    for (var i = 0u; i < WIDTH; i++) { square += squares[i]; }
    inv_rms = inverseSqrt(square / f32(count) + params.eps);
  }
  let turn_at = min(position[0], params.max_position - 1u) * params.half;
  for (var i = t; i < dim - params.half; i += WIDTH) {
    // Pairs (i, i + half), then what stays as it is.
    let turns = i < params.half;
    let first = select(i + params.half, i, turns);
    let y0 = norm_factor(is_q, head, first) * (x[base + first] * inv_rms);
    var out0 = y0;
    if (turns) {
      let second = i + params.half;
      let y1 = norm_factor(is_q, head, second) * (x[base + second] * inv_rms);
      let turn = table[turn_at + i];
      out0 = y0 * turn.x - y1 * turn.y;
      let out1 = y1 * turn.x + y0 * turn.y;
      if (is_q) {
        turned[head + second] = out1;
      } else {
        keys[params.keys_offset + head + second] = out1;
      }
    }
    if (is_q) {
      turned[head + first] = out0;
    } else {
      keys[params.keys_offset + head + first] = out0;
    }
  }
}
