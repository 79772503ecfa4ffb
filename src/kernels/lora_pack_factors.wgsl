// Both factors of a low-rank adapter in f16 for its matrix kernels: a workgroup a factor.
//
// Follows lib_powers.wgsl.
// a        f32 [RANK, in], b  f32 [out, RANK]; multiples of 4 wide
// a_half   f16 [RANK padded to 16, in padded to 32]; b_half  f16 [out padded to 32, RANK padded to
//          16]; both set, zero where padded; 4 halves a vec2<u32>
// powers   (a's power, its inverse, b's power, its inverse): the exact powers of two that bring each
//          factor's largest magnitude into [2^14, 2^15); set

struct Params {
  a_rows: u32,
  a_quads: u32,         // of 4 columns
  a_padded_rows: u32,
  a_padded_quads: u32,
  b_rows: u32,
  b_quads: u32,
  b_padded_rows: u32,
  b_padded_quads: u32,
}

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> a_half: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> b_half: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> powers: array<vec2<f32>>;
@group(0) @binding(5) var<uniform> p: Params;

var<workgroup> lane_largest: array<u32, 256>;

fn element(of_b: bool, i: u32) -> vec4<f32> {
  if (of_b) {
    return b[i];
  }
  return a[i];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  let of_b = wg.x == 1u;
  let rows = select(p.a_rows, p.b_rows, of_b);
  let quads = select(p.a_quads, p.b_quads, of_b);
  let padded_rows = select(p.a_padded_rows, p.b_padded_rows, of_b);
  let padded_quads = select(p.a_padded_quads, p.b_padded_quads, of_b);
  let count = rows * quads;
  var bits = vec4<u32>();
  for (var i = t; i < count; i += 1024u) {
    // Four at once: one after the other they would wait for memory each.
    let last = count - 1u;
    let e0 = element(of_b, i);
    let e1 = element(of_b, min(i + 256u, last));
    let e2 = element(of_b, min(i + 512u, last));
    let e3 = element(of_b, min(i + 768u, last));
    bits = max(bits, max(max(magnitude_bits(e0), magnitude_bits(e1)),
                         max(magnitude_bits(e2), magnitude_bits(e3))));
  }
  lane_largest[t] = largest_of(bits);
  workgroupBarrier();
  for (var step = 128u; step > 0u; step = step >> 1u) {
    if (t < step) {
      lane_largest[t] = max(lane_largest[t], lane_largest[t + step]);
    }
    workgroupBarrier();
  }
  let inverse = inverse_power(lane_largest[0]);
  let power = inverse_of_power(inverse);
  if (t == 0u) {
    powers[wg.x] = vec2<f32>(power, inverse);
  }
  for (var i = t; i < padded_rows * padded_quads; i += 256u) {
    let row = i / padded_quads;
    let quad = i % padded_quads;
    var v = vec4<f32>();
    if (row < rows && quad < quads) {
      v = element(of_b, row * quads + quad) * power;
    }
    let halves = vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw));
    if (of_b) {
      b_half[i] = halves;
    } else {
      a_half[i] = halves;
    }
  }
}
