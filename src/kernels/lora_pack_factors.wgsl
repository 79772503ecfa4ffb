// The factors of low-rank adapters in f16 for their matrix kernels: all that lie in one buffer in
// two dispatches, a row of workgroups a factor.
//   largest  parts[f, g] = the bits of the largest magnitude in the g-th 1024 quads of factor f
//   pack     halves, and (power, inverse): the exact power of two that brings the factor's largest
//            magnitude into [2^14, 2^15)
//
// Follows lib_powers.wgsl.
// table    u32 [factors, 8]: the members of Factor in their order; quads are 4 elements
// values   f32, the factors [rows, 4 quads]
// halves   f16, [padded_rows, 4 padded_quads] each, zero where padded; 4 a vec2<u32>; set
// parts    u32 [factors, part_count]; powers  (power, inverse) at power_at; set
// An invocation takes four quads at once.

struct Params {
  part_count: u32,
}

struct Factor {
  first: u32,  // in `values`, in quads
  rows: u32,
  quads: u32,
  padded_rows: u32,
  padded_quads: u32,
  halves_first: u32,  // in `halves`, in quads
  power_at: u32,
}

const RUN: u32 = 4u;

@group(0) @binding(0) var<storage, read> table: array<u32>;
@group(0) @binding(1) var<storage, read> values: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> parts_out: array<u32>;
@group(0) @binding(3) var<uniform> p: Params;

var<workgroup> lane_largest: array<u32, 256>;

fn factor_at(i: u32) -> Factor {
  let at = i * 8u;
  return Factor(table[at], table[at + 1u], table[at + 2u], table[at + 3u], table[at + 4u],
                table[at + 5u], table[at + 6u]);
}

fn workgroup_largest(t: u32, own: u32) -> u32 {
  lane_largest[t] = own;
  workgroupBarrier();
  for (var step = 128u; step > 0u; step = step >> 1u) {
    if (t < step) {
      lane_largest[t] = max(lane_largest[t], lane_largest[t + step]);
    }
    workgroupBarrier();
  }
  return lane_largest[0];
}

@compute @workgroup_size(256)
fn largest(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  let f = factor_at(wg.y);
  let last = f.rows * f.quads - 1u;
  var bits = vec4<u32>();
  for (var k = 0u; k < RUN; k++) {
    // Past the factor's end its last quad counts again.
    bits = max(bits, magnitude_bits(values[f.first + min((wg.x * RUN + k) * 256u + t, last)]));
  }
  let all = workgroup_largest(t, largest_of(bits));
  if (t == 0u) {
    parts_out[wg.y * p.part_count + wg.x] = all;
  }
}

@group(0) @binding(2) var<storage, read> parts: array<u32>;
@group(0) @binding(3) var<storage, read_write> halves: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> powers: array<vec2<f32>>;
@group(0) @binding(5) var<uniform> p_pack: Params;

@compute @workgroup_size(256)
fn pack(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  let f = factor_at(wg.y);
  let count = f.padded_rows * f.padded_quads;
  let first = wg.x * (256u * RUN) + t;
  var held = array<vec4<f32>, RUN>();
  for (var k = 0u; k < RUN; k++) {
    let row = (first + k * 256u) / f.padded_quads;
    let quad = (first + k * 256u) % f.padded_quads;
    if (row < f.rows && quad < f.quads) {
      held[k] = values[f.first + row * f.quads + quad];
    }
  }
  var own = 0u;
  for (var i = t; i < p_pack.part_count; i += 256u) {
    own = max(own, parts[wg.y * p_pack.part_count + i]);
  }
  let inverse = inverse_power(workgroup_largest(t, own));
  let power = inverse_of_power(inverse);
  if (t == 0u && wg.x == 0u) {
    powers[f.power_at] = vec2<f32>(power, inverse);
  }
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < count) {
      let v = held[k] * power;
      halves[f.halves_first + i] = vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw));
    }
  }
}
