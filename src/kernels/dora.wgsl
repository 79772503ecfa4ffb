// DoRA (Liu et al. 2024): rows of a weight scaled to a length of their own.
//   dora_factors:  norm[r] = |w[r]|;  factor[r] = magnitude[r] / norm[r], 0 where the norm is 0
//                  w [rows, n]; WIDTH invocations a row, 256 / WIDTH rows a workgroup
//   dora_forward:  y[r,j] (+)= (factor[j] + shift) u[r,j] (+ bias[j] where BIAS)
//   dora_backward: grad_u[r,j] = factor[j] grad_y[r,j];  u[r,j] <- grad_y[r,j] u[r,j] / norm[j], 0
//                  where the norm is 0: the terms of the magnitude's gradient
// u, y, grad_y, grad_u [rows, n]; n counts Vecs; one invocation a Vec of a row. All set, but y is
// added to where ACCUMULATE. Equal to cpu::dora_factors, dora_forward and dora_backward (whose
// column sums follow). The sum over a row has a fixed order.
// Prelude: lib_vector1 or lib_vector4, lib_row_reduce_core or lib_row_reduce_subgroups.

override ACCUMULATE: bool = false;
override BIAS: bool = false;

struct RowParams {
  rows: u32,
  n: u32,
}

@group(0) @binding(0) var<storage, read> w: array<Vec>;
@group(0) @binding(1) var<storage, read> magnitude: array<f32>;
@group(0) @binding(2) var<storage, read_write> norm_out: array<f32>;
@group(0) @binding(3) var<storage, read_write> factor_out: array<f32>;
@group(0) @binding(4) var<uniform> row_params: RowParams;

@compute @workgroup_size(256)
fn dora_factors(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(num_workgroups) groups: vec3<u32>,
                @builtin(local_invocation_index) t: u32) {
  let row = (group.x + group.y * groups.x) * (256u / WIDTH) + t / WIDTH;
  let n = select(0u, row_params.n, row < row_params.rows);
  var squares = Vec();
  for (var c = t % WIDTH; c < n; c += WIDTH) {
    let v = w[row * row_params.n + c];
    squares += v * v;
  }
  let norm = sqrt(row_sum(lanes_sum(squares), t));
  if (t % WIDTH == 0u && row < row_params.rows) {
    norm_out[row] = norm;
    var factor = 0.0;
    if (norm > 0.0) { factor = magnitude[row] / norm; }
    factor_out[row] = factor;
  }
}

struct Params {
  count: u32,
  n: u32,
  shift: f32,
}

fn element(group: vec3<u32>, groups: vec3<u32>, t: u32) -> u32 {
  return (group.x + group.y * groups.x) * 256u + t;
}

@group(0) @binding(0) var<storage, read> u: array<Vec>;
@group(0) @binding(1) var<storage, read> factor: array<Vec>;
@group(0) @binding(2) var<storage, read> bias: array<Vec>;
@group(0) @binding(3) var<storage, read_write> y: array<Vec>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(256)
fn dora_forward(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(num_workgroups) groups: vec3<u32>,
                @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  if (i >= params.count) { return; }
  let j = i % params.n;
  var value = (factor[j] + params.shift) * u[i];
  if (BIAS) { value += bias[j]; }
  if (ACCUMULATE) { value += y[i]; }
  y[i] = value;
}

@group(0) @binding(0) var<storage, read> grad_y: array<Vec>;
@group(0) @binding(2) var<storage, read> norm: array<Vec>;
@group(0) @binding(3) var<storage, read_write> terms: array<Vec>;
@group(0) @binding(4) var<storage, read_write> grad_u: array<Vec>;
@group(0) @binding(5) var<uniform> backward: Params;

@compute @workgroup_size(256)
fn dora_backward(@builtin(workgroup_id) group: vec3<u32>,
                 @builtin(num_workgroups) groups: vec3<u32>,
                 @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  if (i >= backward.count) { return; }
  let j = i % backward.n;
  let grad = grad_y[i];
  let length = norm[j];
  let zero = length <= Vec(0.0);
  grad_u[i] = factor[j] * grad;
  terms[i] = select(grad * terms[i] / select(length, Vec(1.0), zero), Vec(0.0), zero);
}
