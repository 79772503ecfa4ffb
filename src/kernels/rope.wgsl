// Rotary position embedding (Su et al. 2021), in place; the backward pass is the inverse rotation.
//   with (c, s) = table[position, i]:  y0 = x0 c - x1 s;  y1 = x1 c + x0 s  (inverse: s negated)
// x [tokens, heads, head_dim]; positions u32 [tokens]; table [max_position, half, 2], half pairs a
// head. Pair i is (2i, 2i + 1), or (i, i + half) where HALF_SPLIT; elements past 2 half stay.
// rope_apply_4: an invocation turns the same 4 pairs of HEADS heads of a token; half and head_dim
// are multiples of 4, heads one of HEADS. rope_apply_1: an invocation turns one pair.
// Equal to cpu::rope_apply. Prelude: HEADS.

override HALF_SPLIT: bool = true;
override INVERSE: bool = false;

struct Params {
  invocations: u32,
  heads: u32,
  head_dim: u32,
  half: u32,
  max_position: u32,
}

@group(0) @binding(0) var<storage, read> positions: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(256)
fn rope_apply_1(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(num_workgroups) groups: vec3<u32>,
                @builtin(local_invocation_index) t: u32) {
  let pair = (group.x + group.y * groups.x) * 256u + t;
  if (pair >= params.invocations) { return; }
  let head = pair / params.half;
  let i = pair - head * params.half;
  let position = positions[head / params.heads];
  if (position >= params.max_position) { return; }
  let turn = table[position * params.half + i];
  let s = select(turn.y, -turn.y, INVERSE);
  let base = head * params.head_dim;
  let first = base + select(2u * i, i, HALF_SPLIT);
  let second = base + select(2u * i + 1u, i + params.half, HALF_SPLIT);
  let x0 = x[first];
  let x1 = x[second];
  x[first] = x0 * turn.x - x1 * s;
  x[second] = x1 * turn.x + x0 * s;
}

@group(0) @binding(1) var<storage, read> table_4: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> x_4: array<vec4<f32>>;

@compute @workgroup_size(256)
fn rope_apply_4(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(num_workgroups) groups: vec3<u32>,
                @builtin(local_invocation_index) t: u32) {
  let index = (group.x + group.y * groups.x) * 256u + t;
  if (index >= params.invocations) { return; }
  let quads = params.half / 4u;
  let head_vecs = params.head_dim / 4u;
  let first_head = index / quads * HEADS;  // of all tokens'
  let quad = index % quads;
  let a = first_head * head_vecs + select(2u * quad, quad, HALF_SPLIT);
  let b = a + select(1u, quads, HALF_SPLIT);
  var v: array<vec4<f32>, HEADS>;
  var w: array<vec4<f32>, HEADS>;
  for (var k = 0u; k < HEADS; k++) {
    v[k] = x_4[a + k * head_vecs];
    w[k] = x_4[b + k * head_vecs];
  }

  let position = positions[first_head / params.heads];
  if (position >= params.max_position) { return; }
  let at = (position * quads + quad) * 2u;
  let turn_a = table_4[at];
  let turn_b = table_4[at + 1u];
  let c = vec4<f32>(turn_a.xz, turn_b.xz);
  let sine = vec4<f32>(turn_a.yw, turn_b.yw);
  let s = select(sine, -sine, INVERSE);
  for (var k = 0u; k < HEADS; k++) {
    if (HALF_SPLIT) {
      x_4[a + k * head_vecs] = v[k] * c - w[k] * s;
      x_4[b + k * head_vecs] = w[k] * c + v[k] * s;
    } else {
      let x0 = vec4<f32>(v[k].xz, w[k].xz);
      let x1 = vec4<f32>(v[k].yw, w[k].yw);
      let y0 = x0 * c - x1 * s;
      let y1 = x1 * c + x0 * s;
      x_4[a + k * head_vecs] = vec4<f32>(y0.x, y1.x, y0.y, y1.y);
      x_4[b + k * head_vecs] = vec4<f32>(y0.z, y1.z, y0.w, y1.w);
    }
  }
}
