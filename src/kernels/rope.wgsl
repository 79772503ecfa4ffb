// Rotary position embedding (Su et al. 2021), in place; the backward pass is the inverse rotation.
//   with (c, s) = table[position, i]:  y0 = x0 c - x1 s;  y1 = x1 c + x0 s  (inverse: s negated)
// x [tokens, heads, head_dim]; positions u32 [tokens]; table [max_position, half, 2], half pairs a
// head. Pair i is (2i, 2i + 1), or (i, i + half) where HALF_SPLIT; elements past 2 half stay.
// One invocation turns one pair. Equal to cpu::rope_apply.

override HALF_SPLIT: bool = true;
override INVERSE: bool = false;

struct Params {
  pairs: u32,  // tokens * heads * half
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
fn rope_apply(@builtin(workgroup_id) group: vec3<u32>,
              @builtin(num_workgroups) groups: vec3<u32>,
              @builtin(local_invocation_index) t: u32) {
  let pair = (group.x + group.y * groups.x) * 256u + t;
  if (pair >= params.pairs) { return; }
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
