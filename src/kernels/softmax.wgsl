// Softmax over each row of [num_rows, row_len] and its gradient.
//   y = exp(x - max) / sum(exp(x - max));  grad_x = y (grad_y - sum(y grad_y))
// One workgroup a row; rows are read again rather than held. Both set their output. Equal to
// cpu::softmax_forward and cpu::softmax_backward.
// row_len counts elements.
// Prelude: lib_vector1 or lib_vector4, lib_row_reduce_core or lib_row_reduce_subgroups (WIDTH 256).

struct Params {
  num_rows: u32,
  row_len: u32,
}

const LOWEST: f32 = -3.4e38;  // below every finite value, in place of -infinity
const FLOOR: f32 = -87.0;     // exp() of less is 0 in f32

@group(0) @binding(0) var<storage, read> x: array<Vec>;
@group(0) @binding(1) var<storage, read_write> y_out: array<Vec>;
@group(0) @binding(2) var<uniform> forward: Params;

@compute @workgroup_size(256)
fn softmax_forward(@builtin(workgroup_id) group: vec3<u32>,
                   @builtin(num_workgroups) groups: vec3<u32>,
                   @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let length = forward.row_len / LANES;
  let n = select(0u, length, row < forward.num_rows);
  let base = row * length;
  var highest = Vec(LOWEST);
  for (var c = t; c < n; c += 256u) { highest = max(highest, x[base + c]); }
  let peak = row_max(lanes_max(highest), t);
  var sum = Vec();
  for (var c = t; c < n; c += 256u) { sum += exp(max(x[base + c] - peak, Vec(FLOOR))); }
  let inverse = 1.0 / row_sum(lanes_sum(sum), t);
  for (var c = t; c < n; c += 256u) {
    y_out[base + c] = exp(max(x[base + c] - peak, Vec(FLOOR))) * inverse;
  }
}

@group(0) @binding(0) var<storage, read> y: array<Vec>;
@group(0) @binding(1) var<storage, read> grad_y: array<Vec>;
@group(0) @binding(2) var<storage, read_write> grad_x: array<Vec>;
@group(0) @binding(3) var<uniform> backward: Params;

@compute @workgroup_size(256)
fn softmax_backward(@builtin(workgroup_id) group: vec3<u32>,
                    @builtin(num_workgroups) groups: vec3<u32>,
                    @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let length = backward.row_len / LANES;
  let n = select(0u, length, row < backward.num_rows);
  let base = row * length;
  var products = Vec();
  for (var c = t; c < n; c += 256u) { products += y[base + c] * grad_y[base + c]; }
  let total = row_sum(lanes_sum(products), t);
  for (var c = t; c < n; c += 256u) {
    grad_x[base + c] = y[base + c] * (grad_y[base + c] - total);
  }
}
