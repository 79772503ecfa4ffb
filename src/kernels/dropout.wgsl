// Dropout with a counter-based mask: element e is kept if and only if word e % 4 of
// Philox4x32-10(counter = (e / 4, stream), key = seed) >= threshold (Salmon et al. 2011).
//   y = x factor where kept, else 0; added to y where ACCUMULATE
// The mask has the bits of cpu::dropout. x, y [n]; this dispatch's first element is that of Philox
// block first_block, and its blocks end below 2^32. An invocation takes RUN blocks of four
// elements, the 256th after one another: dropout_4 and dropout_4_in_place on vectors, dropout_1 and
// dropout_1_in_place, for n that is no multiple of four, element by element.

override ACCUMULATE: bool = false;

const RUN: u32 = 2u;

struct Params {
  n: u32,  // elements
  first_block: u32,
  seed_low: u32,
  seed_high: u32,
  stream_low: u32,
  stream_high: u32,
  threshold: u32,
  factor: f32,
}

// The 64-bit products of a word with Philox's two constants as (low, high), by halves of 16 bits.
// Integer instructions bound this kernel, so each takes the shortest way its constant allows.

// 0xd251 + 0x1f53 < 2^16: the sum of the middle products stays below 2^32.
fn multiply_first(a: u32) -> vec2<u32> {
  let a0 = a & 0xffffu;
  let a1 = a >> 16u;
  let middle = a1 * 0x1f53u + (a0 * 0xd251u + ((a0 * 0x1f53u) >> 16u));
  return vec2<u32>(a * 0xd2511f53u, a1 * 0xd251u + (middle >> 16u));
}

fn multiply_second(a: u32) -> vec2<u32> {
  let a0 = a & 0xffffu;
  let a1 = a >> 16u;
  let part = a0 * 0xcd9eu + ((a0 * 0x8d57u) >> 16u);  // below 2^32
  let middle = a1 * 0x8d57u + part;
  let carry = select(0u, 0x10000u, middle < part);
  return vec2<u32>(a * 0xcd9e8d57u, a1 * 0xcd9eu + (middle >> 16u) + carry);
}

fn philox_round(c: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
  let p = multiply_first(c.x);
  let q = multiply_second(c.z);
  return vec4<u32>(q.y ^ c.y ^ key.x, q.x, p.y ^ c.w ^ key.y, p.x);
}

const KEY_STEP = vec2<u32>(0x9e3779b9u, 0xbb67ae85u);

// Which elements of a block are kept.
fn kept(p: Params, block: u32) -> vec4<bool> {
  var c = vec4<u32>(p.first_block + block, 0u, p.stream_low, p.stream_high);
  let key = vec2<u32>(p.seed_low, p.seed_high);
  // One after the other: part of the first two rounds is the same for a whole dispatch.
  c = philox_round(c, key);
  c = philox_round(c, key + KEY_STEP);
  c = philox_round(c, key + KEY_STEP * 2u);
  c = philox_round(c, key + KEY_STEP * 3u);
  c = philox_round(c, key + KEY_STEP * 4u);
  c = philox_round(c, key + KEY_STEP * 5u);
  c = philox_round(c, key + KEY_STEP * 6u);
  c = philox_round(c, key + KEY_STEP * 7u);
  c = philox_round(c, key + KEY_STEP * 8u);
  return philox_round(c, key + KEY_STEP * 9u) >= vec4<u32>(p.threshold);
}

fn masked(p: Params, block: u32, v: vec4<f32>) -> vec4<f32> {
  return select(vec4<f32>(0.0), v * p.factor, kept(p, block));
}

fn first_block(group: vec3<u32>, groups: vec3<u32>, t: u32) -> u32 {
  return (group.x + group.y * groups.x) * (256u * RUN) + t;
}

@group(0) @binding(0) var<storage, read> x4: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y4: array<vec4<f32>>;
@group(0) @binding(0) var<storage, read> x1: array<f32>;
@group(0) @binding(1) var<storage, read_write> y1: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(256)
fn dropout_4(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_index) t: u32) {
  let first = first_block(group, groups, t);
  var values: array<vec4<f32>, RUN>;
  var sums: array<vec4<f32>, RUN>;
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params.n / 4u) {
      values[k] = x4[i];
      if (ACCUMULATE) { sums[k] = y4[i]; }
    }
  }
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params.n / 4u) {
      var value = masked(params, i, values[k]);
      if (ACCUMULATE) { value += sums[k]; }
      y4[i] = value;
    }
  }
}

@compute @workgroup_size(256)
fn dropout_1(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
             @builtin(local_invocation_index) t: u32) {
  for (var k = 0u; k < RUN; k++) {
    let block = first_block(group, groups, t) + k * 256u;
    if (block * 4u >= params.n) { return; }
    let keep = kept(params, block);
    for (var e = block * 4u; e < min(params.n, block * 4u + 4u); e++) {
      var value = select(0.0, x1[e] * params.factor, keep[e % 4u]);
      if (ACCUMULATE) { value += y1[e]; }
      y1[e] = value;
    }
  }
}

@group(0) @binding(0) var<storage, read_write> in_place4: array<vec4<f32>>;
@group(0) @binding(0) var<storage, read_write> in_place1: array<f32>;
@group(0) @binding(1) var<uniform> in_place_params: Params;

@compute @workgroup_size(256)
fn dropout_4_in_place(@builtin(workgroup_id) group: vec3<u32>,
                      @builtin(num_workgroups) groups: vec3<u32>,
                      @builtin(local_invocation_index) t: u32) {
  let first = first_block(group, groups, t);
  var values: array<vec4<f32>, RUN>;
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < in_place_params.n / 4u) { values[k] = in_place4[i]; }
  }
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < in_place_params.n / 4u) {
      var value = masked(in_place_params, i, values[k]);
      if (ACCUMULATE) { value += values[k]; }
      in_place4[i] = value;
    }
  }
}

@compute @workgroup_size(256)
fn dropout_1_in_place(@builtin(workgroup_id) group: vec3<u32>,
                      @builtin(num_workgroups) groups: vec3<u32>,
                      @builtin(local_invocation_index) t: u32) {
  for (var k = 0u; k < RUN; k++) {
    let block = first_block(group, groups, t) + k * 256u;
    if (block * 4u >= in_place_params.n) { return; }
    let keep = kept(in_place_params, block);
    for (var e = block * 4u; e < min(in_place_params.n, block * 4u + 4u); e++) {
      let v = in_place1[e];
      var value = select(0.0, v * in_place_params.factor, keep[e % 4u]);
      if (ACCUMULATE) { value += v; }
      in_place1[e] = value;
    }
  }
}
