// A weight becomes NF4 (cpu/nf4.h): codes and absmax.
//
// The prelude declares kBounds, the 15 values halfway between codes.
// x       f32 [count], row-major; whole blocks of 64 elements but for a weight's last
// codes   u32, eight codes a word: the first in the high nibble of the lowest byte; set
// absmax  f32, one a block; set
// A unit is the 8 elements of one word; an invocation quantises one, eight share a block.
// Equal to cpu::quantise_nf4 where absmax is 0 or within 2^-126 and 2^126: quotients are rounded
// as IEEE 754 has them, which WGSL's own division does not promise.

struct Params {
  count: u32,
  x_offset: u32,
  absmax_offset: u32,
  codes_offset: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> codes: array<u32>;
@group(0) @binding(2) var<storage, read_write> absmax: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;

var<workgroup> largest: array<u32, 256>;

// a / d rounded to nearest even, for d > 0 and normal, and 0 for a below 2^-126.
fn quotient(a: f32, d: f32) -> f32 {
  let a_bits = bitcast<u32>(a);
  let d_bits = bitcast<u32>(d);
  if ((a_bits & 0x7f800000u) == 0u) {
    return 0.0;
  }
  let divisor = (d_bits & 0x7fffffu) | 0x800000u;
  var rest = (a_bits & 0x7fffffu) | 0x800000u;
  var digits = 0u;
  for (var i = 0u; i < 26u; i++) {
    digits = digits << 1u;
    if (rest >= divisor) {
      rest -= divisor;
      digits |= 1u;
    }
    rest = rest << 1u;
  }
  // 26 digits where the first is 1, else 25; the last one or two and the rest decide the rounding.
  let drop = select(1u, 2u, digits >= 0x2000000u);
  var mantissa = digits >> drop;
  let below = (digits << (32u - drop)) | u32(rest != 0u);
  if (below > 0x80000000u || (below == 0x80000000u && (mantissa & 1u) == 1u)) {
    mantissa += 1u;
  }
  let exponent = i32((a_bits >> 23u) & 0xffu) - i32((d_bits >> 23u) & 0xffu) + i32(drop) - 2 + 127;
  if (exponent <= 0) {
    return 0.0;
  }
  return bitcast<f32>((a_bits & 0x80000000u) | (u32(exponent << 23u) + mantissa - 0x800000u));
}

fn code(scaled: f32) -> u32 {
  var code = 0u;
  for (var i = 0u; i < 15u; i++) {
    code += u32(kBounds[i] < scaled);
  }
  return code;
}

@compute @workgroup_size(256)
fn quantise(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
            @builtin(local_invocation_index) t: u32) {
  let unit = (wg.x + wg.y * grid.x) * 256u + t;
  let first = unit * 8u;
  var v: array<f32, 8>;
  var most = 0u;
  for (var i = 0u; i < 8u; i++) {
    v[i] = 0.0;
    if (first + i < p.count) {
      v[i] = x[p.x_offset + first + i];
    }
    most = max(most, bitcast<u32>(v[i]) & 0x7fffffffu);
  }
  largest[t] = most;
  workgroupBarrier();
  let block = t / 8u * 8u;
  for (var i = 0u; i < 8u; i++) {
    most = max(most, largest[block + i]);
  }
  if (first >= p.count) {
    return;
  }
  let divisor = max(bitcast<f32>(most), 0x1p-126f);
  // bitsandbytes multiplies whole blocks by the reciprocal and divides a last, shorter one.
  let whole = (unit / 8u + 1u) * 64u <= p.count;
  let reciprocal = quotient(1.0, divisor);
  if (unit % 8u == 0u) {
    absmax[p.absmax_offset + unit / 8u] = select(max(bitcast<f32>(most), 1e-38), bitcast<f32>(most), whole);
  }
  var word = 0u;
  for (var i = 0u; i < 8u; i++) {
    let element = first + i;
    var c = 0u;
    if (element < p.count) {
      if (whole) {
        c = code(v[i] * reciprocal);
      } else {
        c = code(quotient(v[i], divisor));
      }
    } else if (element == p.count && element % 2u == 1u) {
      c = 7u;
    }
    word |= c << (i / 2u * 8u + (1u - i % 2u) * 4u);
  }
  codes[p.codes_offset + unit] = word;
}
