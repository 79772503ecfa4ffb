// Gradient of the rotary embedding: the transposed rotation of each pair by p theta^(-2i/d).
//   dx0 = dy0 cos + dy1 sin;  dx1 = dy1 cos - dy0 sin
// dy, dx [num_heads, seq_len, head_dim], pairs (2i, 2i + 1), p the index along seq_len; theta >= 1
// is given by its binary logarithm. One pair an invocation, pair = x + y * 65535 * 256; sets dx.
//
// The angle is computed in turns in 64-bit fixed point: a whole number of turns drops out without
// error at any position, and sine and cosine are polynomials within an eighth of a turn. Numbers of
// 64 bits are (low, high) words; Qa.b has b bits after the point.

struct Params {
  num_heads: u32,
  head_dim: u32,
  seq_len: u32,
  theta_log2: f32,
}

@group(0) @binding(0) var<storage, read> dy: array<f32>;
@group(0) @binding(1) var<storage, read_write> dx: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

// The 64-bit product of two words, by halves of 16 bits.
fn multiply(a: u32, b: u32) -> vec2<u32> {
  let middle = (a >> 16u) * (b & 0xffffu) + (((a & 0xffffu) * (b & 0xffffu)) >> 16u);
  let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
  return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u));
}

fn add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn subtract(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

// The upper 64 bits of the 128-bit product.
fn multiply_high(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let first = multiply(a.x, b.y);
  let second = multiply(a.y, b.x);
  let middle = add(add(vec2<u32>(multiply(a.x, b.x).y, 0u), vec2<u32>(first.x, 0u)),
                   vec2<u32>(second.x, 0u));
  return add(add(multiply(a.y, b.y), vec2<u32>(middle.y, 0u)),
             add(vec2<u32>(first.y, 0u), vec2<u32>(second.y, 0u)));
}

fn shift_right(a: vec2<u32>, by: u32) -> vec2<u32> {
  if (by >= 64u) { return vec2<u32>(0u); }
  if (by >= 32u) { return vec2<u32>(a.y >> (by - 32u), 0u); }
  if (by == 0u) { return a; }
  return vec2<u32>((a.x >> by) | (a.y << (32u - by)), a.y >> by);
}

// theta_log2 2i / d as (fraction Q0.64, whole part).
fn exponent(i: u32) -> vec3<u32> {
  let bits = bitcast<u32>(params.theta_log2);
  let shift = 150u - min(bits >> 23u, 149u);  // theta_log2 = mantissa 2^-shift
  if (shift >= 64u) { return vec3<u32>(0u); }
  // The dividend: mantissa 2i 2^(64 - shift), in four words.
  let product = multiply((bits & 0x7fffffu) | 0x800000u, 2u * i);
  let left = (64u - shift) % 32u;
  let at = (64u - shift) / 32u;
  var words = array<u32, 5>();
  words[at] = product.x << left;
  words[at + 1u] = product.y << left;
  if (left > 0u) {
    words[at + 1u] |= product.x >> (32u - left);
    words[at + 2u] = product.y >> (32u - left);
  }
  // Long division by d < 2^16, sixteen bits at a time.
  var rest = 0u;
  for (var k = 0u; k < 4u; k++) {
    let word = words[3u - k];
    let upper = (rest << 16u) | (word >> 16u);
    let lower = ((upper % params.head_dim) << 16u) | (word & 0xffffu);
    words[3u - k] = ((upper / params.head_dim) << 16u) | (lower / params.head_dim);
    rest = lower % params.head_dim;
  }
  return vec3<u32>(words[0], words[1], words[2]);
}

const LN2 = vec2<u32>(0xd1cf79acu, 0xb17217f7u);          // Q0.64
const INVERSE_2PI = vec2<u32>(0x9391054au, 0x28be60dbu);  // Q0.64

// 1 / k! in Q2.62.
const COEFFICIENTS = array<vec2<u32>, 18>(
    vec2<u32>(0x00000000u, 0x40000000u), vec2<u32>(0x00000000u, 0x40000000u),
    vec2<u32>(0x00000000u, 0x20000000u), vec2<u32>(0xaaaaaaabu, 0x0aaaaaaau),
    vec2<u32>(0xaaaaaaabu, 0x02aaaaaau), vec2<u32>(0x88888889u, 0x00888888u),
    vec2<u32>(0x16c16c17u, 0x0016c16cu), vec2<u32>(0x03403403u, 0x00034034u),
    vec2<u32>(0x80680680u, 0x00006806u), vec2<u32>(0xf1d2ab64u, 0x00000b8eu),
    vec2<u32>(0xe4fb778au, 0x00000127u), vec2<u32>(0xe64567f5u, 0x0000001au),
    vec2<u32>(0x3ddb1dffu, 0x00000002u), vec2<u32>(0x2c248c27u, 0x00000000u),
    vec2<u32>(0x03272e95u, 0x00000000u), vec2<u32>(0x0035cfe8u, 0x00000000u),
    vec2<u32>(0x00035cfeu, 0x00000000u), vec2<u32>(0x000032a6u, 0x00000000u));

// The turns that pair i makes from one position to the next, theta^(-2i/d) / (2 pi), in Q2.62.
fn turns_per_position(i: u32) -> vec2<u32> {
  let e = exponent(i);
  let y = multiply_high(e.xy, LN2);
  // exp(-y) by its series: y < 0.7, so that the first term left out is below 2^-62.
  var power = COEFFICIENTS[17];
  for (var k = 0u; k < 17u; k++) {
    power = subtract(COEFFICIENTS[16u - k], multiply_high(power, y));
  }
  return shift_right(multiply_high(power, INVERSE_2PI), e.z);
}

// (cos, sin) of the angle of pair i at position p.
fn rotation(p: u32, i: u32) -> vec2<f32> {
  let step = turns_per_position(i);
  let low = multiply(step.x, p);
  let turns = vec2<u32>(low.x, low.y + step.y * p);  // whole turns above bit 62 drop out
  let phase = vec2<u32>(turns.x << 2u, (turns.y << 2u) | (turns.x >> 30u));  // Q0.64
  let quarter = (phase.y + 0x20000000u) >> 30u;
  var rest = vec2<u32>(phase.x, phase.y - (quarter << 30u));
  let negative = rest.y >= 0x80000000u;
  if (negative) { rest = subtract(vec2<u32>(0u), rest); }
  let size = (f32(rest.y) * 0x1p-32 + f32(rest.x) * 0x1p-64) * 6.283185307179586;
  let a = select(size, -size, negative);
  let s2 = a * a;
  let s_tail = 0.008333333 + s2 * (-0.0001984127 + s2 * 2.7557319e-6);
  let s = a + a * s2 * (-0.16666667 + s2 * s_tail);
  let c_tail = -0.0013888889 + s2 * (2.4801587e-5 - s2 * 2.7557319e-7);
  let c = 1.0 + s2 * (-0.5 + s2 * (0.041666667 + s2 * c_tail));
  switch (quarter) {
    case 0u: { return vec2<f32>(c, s); }
    case 1u: { return vec2<f32>(-s, c); }
    case 2u: { return vec2<f32>(-c, -s); }
    default: { return vec2<f32>(s, -c); }
  }
}

@compute @workgroup_size(256)
fn rope_backward(@builtin(workgroup_id) group: vec3<u32>,
                 @builtin(num_workgroups) groups: vec3<u32>,
                 @builtin(local_invocation_index) t: u32) {
  let pair = (group.x + group.y * groups.x) * 256u + t;
  let half = params.head_dim / 2u;
  if (pair >= params.num_heads * params.seq_len * half) { return; }
  let token = pair / half;
  let i = pair % half;
  let turn = rotation(token % params.seq_len, i);
  let at = token * params.head_dim + 2u * i;
  let dy0 = dy[at];
  let dy1 = dy[at + 1u];
  dx[at] = dy0 * turn.x + dy1 * turn.y;
  dx[at + 1u] = dy1 * turn.x - dy0 * turn.y;
}
