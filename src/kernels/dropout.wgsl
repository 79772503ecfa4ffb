// Dropout with a counter-based mask: element e is kept if and only if word e % 4 of
// Philox4x32-10(counter = (e / 4, stream), key = seed) >= threshold (Salmon et al. 2011).
//   y = x factor where kept, else 0; added to y where ACCUMULATE
// The mask has the bits of cpu::dropout. x, y [n]; the first element of this dispatch is `first`
// (64 bits, a multiple of 4). One invocation a Philox block: dropout_4 and dropout_4_in_place on
// vectors (n a multiple of 4); dropout_1 and dropout_1_in_place one invocation an element.

override ACCUMULATE: bool = false;

struct Params {
  n: u32,  // vectors or elements
  first_low: u32,
  first_high: u32,
  seed_low: u32,
  seed_high: u32,
  stream_low: u32,
  stream_high: u32,
  threshold: u32,
  factor: f32,
}

// The 64-bit product of two words as (low, high), by halves of 16 bits.
fn multiply(a: u32, b: u32) -> vec2<u32> {
  let a0 = a & 0xffffu;
  let a1 = a >> 16u;
  let b0 = b & 0xffffu;
  let b1 = b >> 16u;
  let low = a0 * b0;
  let middle = a1 * b0 + (low >> 16u);  // at most 2^32 - 2^16
  let other = a0 * b1 + (middle & 0xffffu);
  return vec2<u32>(a * b, a1 * b1 + (middle >> 16u) + (other >> 16u));
}

fn philox(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
  var c = counter;
  var k = key;
  for (var round = 0u; round < 10u; round++) {
    let p = multiply(0xd2511f53u, c.x);
    let q = multiply(0xcd9e8d57u, c.z);
    c = vec4<u32>(q.y ^ c.y ^ k.x, q.x, p.y ^ c.w ^ k.y, p.x);
    k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
  }
  return c;
}

// The words of Philox block (first / 4 + block).
fn words(p: Params, block: u32) -> vec4<u32> {
  let low = (p.first_low >> 2u) | (p.first_high << 30u);
  let sum = low + block;
  let high = (p.first_high >> 2u) + select(0u, 1u, sum < low);
  return philox(vec4<u32>(sum, high, p.stream_low, p.stream_high),
                vec2<u32>(p.seed_low, p.seed_high));
}

fn masked_4(p: Params, i: u32, v: vec4<f32>) -> vec4<f32> {
  let keep = words(p, i) >= vec4<u32>(p.threshold);
  return select(vec4<f32>(0.0), v * p.factor, keep);
}

fn masked_1(p: Params, i: u32, v: f32) -> f32 {
  let keep = words(p, i / 4u)[i % 4u] >= p.threshold;
  return select(0.0, v * p.factor, keep);
}

fn element(group: vec3<u32>, groups: vec3<u32>, t: u32) -> u32 {
  return (group.x + group.y * groups.x) * 256u + t;
}

@group(0) @binding(0) var<storage, read> x4: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y4: array<vec4<f32>>;
@group(0) @binding(0) var<storage, read> x1: array<f32>;
@group(0) @binding(1) var<storage, read_write> y1: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(256)
fn dropout_4(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  if (i >= params.n) { return; }
  var value = masked_4(params, i, x4[i]);
  if (ACCUMULATE) { value += y4[i]; }
  y4[i] = value;
}

@compute @workgroup_size(256)
fn dropout_1(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  if (i >= params.n) { return; }
  var value = masked_1(params, i, x1[i]);
  if (ACCUMULATE) { value += y1[i]; }
  y1[i] = value;
}

@group(0) @binding(0) var<storage, read_write> in_place4: array<vec4<f32>>;
@group(0) @binding(0) var<storage, read_write> in_place1: array<f32>;
@group(0) @binding(1) var<uniform> in_place_params: Params;

@compute @workgroup_size(256)
fn dropout_4_in_place(@builtin(workgroup_id) group: vec3<u32>,
                      @builtin(num_workgroups) groups: vec3<u32>,
                      @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  if (i >= in_place_params.n) { return; }
  let v = in_place4[i];
  var value = masked_4(in_place_params, i, v);
  if (ACCUMULATE) { value += v; }
  in_place4[i] = value;
}

@compute @workgroup_size(256)
fn dropout_1_in_place(@builtin(workgroup_id) group: vec3<u32>,
                      @builtin(num_workgroups) groups: vec3<u32>,
                      @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  if (i >= in_place_params.n) { return; }
  let v = in_place1[i];
  var value = masked_1(in_place_params, i, v);
  if (ACCUMULATE) { value += v; }
  in_place1[i] = value;
}
