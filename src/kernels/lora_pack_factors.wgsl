// Both factors of a low-rank adapter in f16 for its matrix kernels, in two dispatches:
//   largest  parts[f, g] = the bits of the largest magnitude in the g-th 1024 quads of factor f
//   pack     the halves, and powers = (a's power, its inverse, b's power, its inverse): the exact
//            powers of two that bring each factor's largest magnitude into [2^14, 2^15)
//
// Follows lib_powers.wgsl.
// a        f32 [RANK, in], b  f32 [out, RANK]; multiples of 4 wide
// a_half   f16 [RANK padded to 16, in padded to 32]; b_half  f16 [out padded to 32, RANK padded to
//          16]; both set, zero where padded; 4 halves a vec2<u32>
// parts    u32 [2, part_count], powers  f32 [4]; set
// A workgroup takes 1024 quads of the factor that its y is, an invocation four at once.

struct Params {
  a_rows: u32,
  a_quads: u32,         // of 4 columns
  a_padded_rows: u32,
  a_padded_quads: u32,
  b_rows: u32,
  b_quads: u32,
  b_padded_rows: u32,
  b_padded_quads: u32,
  part_count: u32,
}

const RUN: u32 = 4u;

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> parts_out: array<u32>;
@group(0) @binding(3) var<uniform> p: Params;

var<workgroup> lane_largest: array<u32, 256>;

fn element(of_b: bool, i: u32) -> vec4<f32> {
  if (of_b) {
    return b[i];
  }
  return a[i];
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
  let of_b = wg.y == 1u;
  let last = select(p.a_rows * p.a_quads, p.b_rows * p.b_quads, of_b) - 1u;
  var bits = vec4<u32>();
  for (var k = 0u; k < RUN; k++) {
    // Past the factor's end its last quad counts again.
    bits = max(bits, magnitude_bits(element(of_b, min((wg.x * RUN + k) * 256u + t, last))));
  }
  let all = workgroup_largest(t, largest_of(bits));
  if (t == 0u) {
    parts_out[wg.y * p.part_count + wg.x] = all;
  }
}

@group(0) @binding(2) var<storage, read> parts: array<u32>;
@group(0) @binding(3) var<storage, read_write> a_half: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> b_half: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> powers: array<vec2<f32>>;
@group(0) @binding(6) var<uniform> p_pack: Params;

@compute @workgroup_size(256)
fn pack(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  let of_b = wg.y == 1u;
  let rows = select(p_pack.a_rows, p_pack.b_rows, of_b);
  let quads = select(p_pack.a_quads, p_pack.b_quads, of_b);
  let padded_quads = select(p_pack.a_padded_quads, p_pack.b_padded_quads, of_b);
  let count = select(p_pack.a_padded_rows, p_pack.b_padded_rows, of_b) * padded_quads;
  let first = wg.x * (256u * RUN) + t;
  var values: array<vec4<f32>, RUN>;
  for (var k = 0u; k < RUN; k++) {
    let row = (first + k * 256u) / padded_quads;
    let quad = (first + k * 256u) % padded_quads;
    if (row < rows && quad < quads) {
      values[k] = element(of_b, row * quads + quad);
    }
  }
  var own = 0u;
  for (var i = t; i < p_pack.part_count; i += 256u) {
    own = max(own, parts[wg.y * p_pack.part_count + i]);
  }
  let inverse = inverse_power(workgroup_largest(t, own));
  let power = inverse_of_power(inverse);
  if (t == 0u && wg.x == 0u) {
    powers[wg.y] = vec2<f32>(power, inverse);
  }
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < count) {
      let v = values[k] * power;
      let halves = vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw));
      if (of_b) {
        b_half[i] = halves;
      } else {
        a_half[i] = halves;
      }
    }
  }
}
