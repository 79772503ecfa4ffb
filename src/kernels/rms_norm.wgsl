// RMSNorm (Zhang and Sennrich 2019) and its gradients.
//   r = sqrt(mean(x^2) + eps);  y = w x / r;  inv_rms = 1 / r
//   with w = weight_offset + weight, u = w grad_y:  grad_x = (u - x mean(x u) / r^2) / r
//   grad_weight += sum over rows of grad_y x / r
// x, y, grad_y, grad_x [rows, n]; weight, grad_weight [n]; inv_rms [rows]; n counts Vecs.
//
// WIDTH invocations a row, 256 / WIDTH rows at once a workgroup; the first HELD Vecs of an
// invocation stay in registers. Equal to cpu::rms_norm_forward and cpu::rms_norm_backward.
// rms_norm_forward sets; rms_norm_backward sets grad_x, or adds to it where accumulate.
// rms_norm_backward_weight does so too, and sets one row of `partial` [groups, n] to the weight's
// gradient over the workgroup's 256 / WIDTH slots of rows_per_slot rows each.
// rms_norm_grad_weight_total: 16 columns a workgroup, adds `partial` to grad_weight.
// Every sum has a fixed order.
// Prelude: lib_vector1 or lib_vector4, lib_row_reduce_core or lib_row_reduce_subgroups, HELD.

struct RowParams {
  rows: u32,
  n: u32,
  inv_n: f32,  // 1 / elements a row
  eps: f32,
  weight_offset: f32,
  accumulate: u32,
}

@group(0) @binding(0) var<storage, read> x: array<Vec>;
@group(0) @binding(1) var<storage, read> weight: array<Vec>;
@group(0) @binding(2) var<storage, read_write> y: array<Vec>;
@group(0) @binding(3) var<storage, read_write> inv_rms_out: array<f32>;
@group(0) @binding(4) var<uniform> forward: RowParams;

fn weight_at(c: u32, offset: f32) -> Vec { return weight[c] + offset; }

@compute @workgroup_size(256)
fn rms_norm_forward(@builtin(workgroup_id) group: vec3<u32>,
                    @builtin(num_workgroups) groups: vec3<u32>,
                    @builtin(local_invocation_index) t: u32) {
  let row = (group.x + group.y * groups.x) * (256u / WIDTH) + t / WIDTH;
  let n = select(0u, forward.n, row < forward.rows);
  let first = t % WIDTH;
  let base = row * forward.n;

  var held: array<Vec, HELD>;
  var squares = Vec();
  for (var k = 0u; k < HELD; k++) {
    let c = first + k * WIDTH;
    if (c < n) {
      held[k] = x[base + c];
      squares += held[k] * held[k];
    }
  }
  for (var c = first + HELD * WIDTH; c < n; c += WIDTH) {
    let v = x[base + c];
    squares += v * v;
  }
  let inv_rms = inverseSqrt(row_sum(lanes_sum(squares), t) * forward.inv_n + forward.eps);

  for (var k = 0u; k < HELD; k++) {
    let c = first + k * WIDTH;
    if (c < n) { y[base + c] = weight_at(c, forward.weight_offset) * (held[k] * inv_rms); }
  }
  for (var c = first + HELD * WIDTH; c < n; c += WIDTH) {
    y[base + c] = weight_at(c, forward.weight_offset) * (x[base + c] * inv_rms);
  }
  if (first == 0u && row < forward.rows) { inv_rms_out[row] = inv_rms; }
}

@group(0) @binding(2) var<storage, read> inv_rms_in: array<f32>;
@group(0) @binding(3) var<storage, read> grad_y: array<Vec>;
@group(0) @binding(4) var<storage, read_write> grad_x: array<Vec>;
@group(0) @binding(5) var<uniform> backward: RowParams;

@compute @workgroup_size(256)
fn rms_norm_backward(@builtin(workgroup_id) group: vec3<u32>,
                     @builtin(num_workgroups) groups: vec3<u32>,
                     @builtin(local_invocation_index) t: u32) {
  let row = (group.x + group.y * groups.x) * (256u / WIDTH) + t / WIDTH;
  let n = select(0u, backward.n, row < backward.rows);
  let first = t % WIDTH;
  let base = row * backward.n;
  var inv_rms = 0.0;
  if (row < backward.rows) { inv_rms = inv_rms_in[row]; }

  // normalised: x / r.
  var normalised: array<Vec, HELD>;
  var u: array<Vec, HELD>;
  var products = Vec();
  for (var k = 0u; k < HELD; k++) {
    let c = first + k * WIDTH;
    if (c < n) {
      normalised[k] = x[base + c] * inv_rms;
      u[k] = weight_at(c, backward.weight_offset) * grad_y[base + c];
      products += normalised[k] * u[k];
    }
  }
  for (var c = first + HELD * WIDTH; c < n; c += WIDTH) {
    products += x[base + c] * inv_rms * (weight_at(c, backward.weight_offset) * grad_y[base + c]);
  }
  let mean = row_sum(lanes_sum(products), t) * backward.inv_n;

  for (var k = 0u; k < HELD; k++) {
    let c = first + k * WIDTH;
    if (c < n) {
      var grad = (u[k] - normalised[k] * mean) * inv_rms;
      if (backward.accumulate != 0u) { grad += grad_x[base + c]; }
      grad_x[base + c] = grad;
    }
  }
  for (var c = first + HELD * WIDTH; c < n; c += WIDTH) {
    var grad = (weight_at(c, backward.weight_offset) * grad_y[base + c] - x[base + c] * inv_rms * mean) * inv_rms;
    if (backward.accumulate != 0u) { grad += grad_x[base + c]; }
    grad_x[base + c] = grad;
  }
}

struct WeightParams {
  rows: u32,
  n: u32,
  inv_n: f32,
  rows_per_slot: u32,
  first_group: u32,  // rows of `partial` before this dispatch's
  weight_offset: f32,
  accumulate: u32,
}

@group(0) @binding(5) var<storage, read_write> partial: array<Vec>;
@group(0) @binding(6) var<uniform> weighted: WeightParams;

var<workgroup> slots: array<Vec, 256>;

@compute @workgroup_size(256)
fn rms_norm_backward_weight(@builtin(workgroup_id) group: vec3<u32>,
                            @builtin(local_invocation_index) t: u32) {
  let slot_count = 256u / WIDTH;
  let first = t % WIDTH;
  let out = (weighted.first_group + group.x) * weighted.n;
  var scale: array<Vec, HELD>;
  var sums: array<Vec, HELD>;
  for (var k = 0u; k < HELD; k++) {
    let c = first + k * WIDTH;
    if (c < weighted.n) { scale[k] = weight_at(c, weighted.weight_offset); }
  }
  for (var step = 0u; step < weighted.rows_per_slot; step++) {
    let row = (group.x * weighted.rows_per_slot + step) * slot_count + t / WIDTH;
    let n = select(0u, weighted.n, row < weighted.rows);
    let base = row * weighted.n;
    var inv_rms = 0.0;
    if (row < weighted.rows) { inv_rms = inv_rms_in[row]; }

    // Written out: without a value some devices keep that of the step before.
    var normalised = array<Vec, HELD>();
    var u = array<Vec, HELD>();
    var products = Vec();
    for (var k = 0u; k < HELD; k++) {
      let c = first + k * WIDTH;
      if (c < n) {
        normalised[k] = x[base + c];
        u[k] = grad_y[base + c];
      }
    }
    for (var k = 0u; k < HELD; k++) {
      normalised[k] *= inv_rms;
      sums[k] += u[k] * normalised[k];
      u[k] *= scale[k];
      products += normalised[k] * u[k];
    }
    for (var c = first + HELD * WIDTH; c < n; c += WIDTH) {
      let v = x[base + c] * inv_rms;
      let g = grad_y[base + c];
      products += v * (weight_at(c, weighted.weight_offset) * g);
      var sum = g * v;
      if (step > 0u) { sum += partial[out + c]; }
      partial[out + c] = sum;
    }
    let mean = row_sum(lanes_sum(products), t) * weighted.inv_n;

    for (var k = 0u; k < HELD; k++) {
      let c = first + k * WIDTH;
      if (c < n) {
        var grad = (u[k] - normalised[k] * mean) * inv_rms;
        if (weighted.accumulate != 0u) { grad += grad_x[base + c]; }
        grad_x[base + c] = grad;
      }
    }
    for (var c = first + HELD * WIDTH; c < n; c += WIDTH) {
      var grad = (weight_at(c, weighted.weight_offset) * grad_y[base + c] - x[base + c] * inv_rms * mean) * inv_rms;
      if (weighted.accumulate != 0u) { grad += grad_x[base + c]; }
      grad_x[base + c] = grad;
    }
  }

  if (slot_count > 1u) {  // HELD is 1 then
    slots[t] = sums[0];
    workgroupBarrier();
    if (t < WIDTH) {
      for (var slot = 1u; slot < slot_count; slot++) { sums[0] += slots[slot * WIDTH + t]; }
    }
  }
  for (var k = 0u; k < HELD; k++) {
    let c = first + k * WIDTH;
    if (t < WIDTH && c < weighted.n) { partial[out + c] = sums[k]; }
  }
}

struct TotalParams {
  groups: u32,
  n: u32,
}

const COLUMNS: u32 = 16u;
const STRIPES: u32 = 16u;  // invocations a column

@group(0) @binding(0) var<storage, read> total_partial: array<Vec>;
@group(0) @binding(1) var<storage, read_write> grad_weight: array<Vec>;
@group(0) @binding(2) var<uniform> total_params: TotalParams;

@compute @workgroup_size(256)
fn rms_norm_grad_weight_total(@builtin(workgroup_id) group: vec3<u32>,
                              @builtin(local_invocation_index) t: u32) {
  let c = group.x * COLUMNS + t % COLUMNS;
  var total = Vec();
  if (c < total_params.n) {
    for (var g = t / COLUMNS; g < total_params.groups; g += STRIPES) {
      total += total_partial[g * total_params.n + c];
    }
  }
  slots[t] = total;
  workgroupBarrier();
  if (t < COLUMNS && c < total_params.n) {
    for (var stripe = 1u; stripe < STRIPES; stripe++) { total += slots[stripe * COLUMNS + t]; }
    grad_weight[c] += total;
  }
}
