// A gated activation between products of f16 operands: what they take leaves as f16 blocks, each row times the
// power of two that brings its largest magnitude into [2^14, 2^15), whose inverse goes to a scale.
//   gated_pack_forward   activated = act(gate) up; gate and up as halves too, for the way back
//   gated_pack_backward  grad_gate = grad up act'(gate); grad_up = grad act(gate); activated
//
// Follows lib_vector4, lib_silu (or lib_gelu_tanh, lib_gelu), lib_powers, lib_f16_blocks.
// gate, up, grad            f32 [rows, columns]; columns = 8 units
// gate_halves, up_halves    f16 [rows, columns], 8 a vec4<u32>, times their rows' powers
// activated, grad_gate, ..  f16 blocks, padded with zeros to multiples of 32; set
// forward_scales            f32 [3, scale_stride]: of gate, up, activated
// halves_scales             the same, read; backward_scales, the same: of grad_gate, grad_up,
//                           activated; set
// A workgroup takes a row, twice: for its largest magnitudes, then to store.

struct Params {
  rows: u32,
  units: u32,
  padded_rows: u32,
  column_blocks: u32,
  scale_stride: u32,  // from one row of scales to the next
}

var<workgroup> largest: array<vec3<u32>, 256>;

// Of the whole row; every invocation of the workgroup calls it.
fn row_largest(t: u32, own: vec3<u32>) -> vec3<u32> {
  largest[t] = own;
  workgroupBarrier();
  for (var step = 128u; step > 0u; step = step >> 1u) {
    if (t < step) {
      largest[t] = max(largest[t], largest[t + step]);
    }
    workgroupBarrier();
  }
  return largest[0];
}

fn largest_pair(a: vec4<f32>, b: vec4<f32>) -> u32 {
  return largest_of(max(magnitude_bits(a), magnitude_bits(b)));
}

@group(0) @binding(0) var<storage, read> gate: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> up: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> gate_out: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> up_out: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> activated: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> forward_scales: array<f32>;
@group(0) @binding(6) var<uniform> p: Params;

@compute @workgroup_size(256)
fn gated_pack_forward(@builtin(workgroup_id) wg: vec3<u32>,
                       @builtin(num_workgroups) grid: vec3<u32>,
                       @builtin(local_invocation_index) t: u32) {
  let row = wg.x + wg.y * grid.x;
  if (row >= p.padded_rows) {
    return;
  }
  let units = select(0u, p.units, row < p.rows);
  var own = vec3<u32>();
  for (var unit = t; unit < units; unit += 256u) {
    let at = (row * p.units + unit) * 2u;
    let g0 = gate[at];
    let g1 = gate[at + 1u];
    let u0 = up[at];
    let u1 = up[at + 1u];
    own = max(own, vec3<u32>(largest_pair(g0, g1), largest_pair(u0, u1),
                             largest_pair(activate(g0, sigmoid(g0)) * u0, activate(g1, sigmoid(g1)) * u1)));
  }
  let tops = row_largest(t, own);
  let inverse = vec3<f32>(inverse_power(tops.x), inverse_power(tops.y), inverse_power(tops.z));
  if (t < 3u && row < p.rows) {
    forward_scales[t * p.scale_stride + row] = inverse[t];
  }
  let power = vec3<f32>(inverse_of_power(inverse.x), inverse_of_power(inverse.y),
                        inverse_of_power(inverse.z));
  for (var unit = t; unit < p.column_blocks * 2u; unit += 256u) {
    var packed = vec4<u32>();
    if (unit < units) {
      let at = (row * p.units + unit) * 2u;
      let g0 = gate[at];
      let g1 = gate[at + 1u];
      let u0 = up[at];
      let u1 = up[at + 1u];
      gate_out[row * p.units + unit] = to_halves(g0 * power.x, g1 * power.x);
      up_out[row * p.units + unit] = to_halves(u0 * power.y, u1 * power.y);
      packed = to_halves(activate(g0, sigmoid(g0)) * u0 * power.z, activate(g1, sigmoid(g1)) * u1 * power.z);
    }
    activated[block_unit(row / 16u, slot_of(row % 16u), unit, p.column_blocks)] = packed;
  }
}

@group(0) @binding(0) var<storage, read> gate_halves: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> up_halves: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> halves_scales: array<f32>;
@group(0) @binding(3) var<storage, read> grad: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> grad_gate: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> grad_up: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> activated_again: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> backward_scales: array<f32>;
@group(0) @binding(8) var<uniform> q: Params;

struct Gradients {
  gate: vec4<f32>,
  up: vec4<f32>,
  activated: vec4<f32>,
}

fn gradients(gate: vec4<f32>, up: vec4<f32>, d: vec4<f32>) -> Gradients {
  let s = sigmoid(gate);
  let x = activate(gate, s);
  return Gradients(d * up * activation_slope(gate, s), d * x, x * up);
}

fn lower_half(x: vec4<u32>) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(x.x), unpack2x16float(x.y));
}

fn upper_half(x: vec4<u32>) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(x.z), unpack2x16float(x.w));
}

@compute @workgroup_size(256)
fn gated_pack_backward(@builtin(workgroup_id) wg: vec3<u32>,
                        @builtin(num_workgroups) grid: vec3<u32>,
                        @builtin(local_invocation_index) t: u32) {
  let row = wg.x + wg.y * grid.x;
  if (row >= q.padded_rows) {
    return;
  }
  let units = select(0u, q.units, row < q.rows);
  let scale_row = min(row, q.rows - 1u);
  let gate_scale = halves_scales[scale_row];
  let up_scale = halves_scales[q.scale_stride + scale_row];
  var own = vec3<u32>();
  for (var unit = t; unit < units; unit += 256u) {
    let at = row * q.units + unit;
    let g = gate_halves[at];
    let u = up_halves[at];
    let a = gradients(lower_half(g) * gate_scale, lower_half(u) * up_scale, grad[at * 2u]);
    let b = gradients(upper_half(g) * gate_scale, upper_half(u) * up_scale, grad[at * 2u + 1u]);
    own = max(own, vec3<u32>(largest_pair(a.gate, b.gate), largest_pair(a.up, b.up),
                             largest_pair(a.activated, b.activated)));
  }
  let tops = row_largest(t, own);
  let inverse = vec3<f32>(inverse_power(tops.x), inverse_power(tops.y), inverse_power(tops.z));
  if (t < 3u && row < q.rows) {
    backward_scales[t * q.scale_stride + row] = inverse[t];
  }
  let power = vec3<f32>(inverse_of_power(inverse.x), inverse_of_power(inverse.y),
                        inverse_of_power(inverse.z));
  for (var unit = t; unit < q.column_blocks * 2u; unit += 256u) {
    let to = block_unit(row / 16u, slot_of(row % 16u), unit, q.column_blocks);
    var halves = array<vec4<u32>, 3>();
    if (unit < units) {
      let at = row * q.units + unit;
      let g = gate_halves[at];
      let u = up_halves[at];
      let a = gradients(lower_half(g) * gate_scale, lower_half(u) * up_scale, grad[at * 2u]);
      let b = gradients(upper_half(g) * gate_scale, upper_half(u) * up_scale, grad[at * 2u + 1u]);
      halves[0] = to_halves(a.gate * power.x, b.gate * power.x);
      halves[1] = to_halves(a.up * power.y, b.up * power.y);
      halves[2] = to_halves(a.activated * power.z, b.activated * power.z);
    }
    grad_gate[to] = halves[0];
    grad_up[to] = halves[1];
    activated_again[to] = halves[2];
  }
}
