// RMSNorm (Zhang and Sennrich 2019) and its gradients.
//   r = sqrt(mean(x^2) + eps);  y = weight x / r;  inv_rms = 1 / r
//   with u = weight grad_y:  grad_x = (u - x mean(x u) / r^2) / r
//   grad_weight += sum over rows of grad_y x / r
// x, y, grad_y, grad_x [rows, n]; weight, grad_weight [n]; inv_rms [rows]; n counts Vecs.
//
// rms_norm_forward, rms_norm_backward: WIDTH invocations a row, 256 / WIDTH rows a workgroup; the
// first HELD Vecs of an invocation stay in registers. Forward sets; backward sets grad_x, or adds
// to it where ACCUMULATE. Equal to cpu::rms_norm_forward and cpu::rms_norm_backward.
// rms_norm_grad_weight_partial: 64 columns x rows_per_group rows a workgroup, sets one row of
// `partial` [groups, n]; rms_norm_grad_weight_total: 64 columns a workgroup, adds to grad_weight.
// Both add in a fixed order.
// Prelude: lib_vector1 or lib_vector4, lib_row_reduce_core or lib_row_reduce_subgroups, HELD.

override ACCUMULATE: bool = false;

struct RowParams {
  rows: u32,
  n: u32,
  inv_n: f32,  // 1 / elements a row
  eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<Vec>;
@group(0) @binding(1) var<storage, read> weight: array<Vec>;
@group(0) @binding(2) var<storage, read_write> y: array<Vec>;
@group(0) @binding(3) var<storage, read_write> inv_rms_out: array<f32>;
@group(0) @binding(4) var<uniform> forward: RowParams;

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
    if (c < n) { y[base + c] = weight[c] * (held[k] * inv_rms); }
  }
  for (var c = first + HELD * WIDTH; c < n; c += WIDTH) {
    y[base + c] = weight[c] * (x[base + c] * inv_rms);
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
      u[k] = weight[c] * grad_y[base + c];
      products += normalised[k] * u[k];
    }
  }
  for (var c = first + HELD * WIDTH; c < n; c += WIDTH) {
    products += x[base + c] * inv_rms * (weight[c] * grad_y[base + c]);
  }
  let mean = row_sum(lanes_sum(products), t) * backward.inv_n;

  for (var k = 0u; k < HELD; k++) {
    let c = first + k * WIDTH;
    if (c < n) {
      var grad = (u[k] - normalised[k] * mean) * inv_rms;
      if (ACCUMULATE) { grad += grad_x[base + c]; }
      grad_x[base + c] = grad;
    }
  }
  for (var c = first + HELD * WIDTH; c < n; c += WIDTH) {
    var grad = (weight[c] * grad_y[base + c] - x[base + c] * inv_rms * mean) * inv_rms;
    if (ACCUMULATE) { grad += grad_x[base + c]; }
    grad_x[base + c] = grad;
  }
}

struct PartialParams {
  rows: u32,
  n: u32,
  rows_per_group: u32,
  first_group: u32,  // rows of `partial` before this dispatch's
}

@group(0) @binding(1) var<storage, read> partial_inv_rms: array<f32>;
@group(0) @binding(2) var<storage, read> partial_grad_y: array<Vec>;
@group(0) @binding(3) var<storage, read_write> partial_out: array<Vec>;
@group(0) @binding(4) var<uniform> partial: PartialParams;

const COLUMNS: u32 = 64u;
const STRIPES: u32 = 4u;  // invocations a column
const RUN: u32 = 32u;     // terms added before they join the total: the error grows with its root
var<workgroup> stripes: array<Vec, 256>;

fn add_stripes(value: Vec, t: u32) -> Vec {
  stripes[t] = value;
  workgroupBarrier();
  let c = t % COLUMNS;
  let first = stripes[c] + stripes[c + COLUMNS];
  return first + (stripes[c + 2u * COLUMNS] + stripes[c + 3u * COLUMNS]);
}

@compute @workgroup_size(256)
fn rms_norm_grad_weight_partial(@builtin(workgroup_id) group: vec3<u32>,
                                @builtin(local_invocation_index) t: u32) {
  let c = group.x * COLUMNS + t % COLUMNS;
  let end = min(partial.rows, (group.y + 1u) * partial.rows_per_group);
  var total = Vec();
  if (c < partial.n) {
    var row = group.y * partial.rows_per_group + t / COLUMNS;
    while (row < end) {
      var run = Vec();
      let run_end = min(end, row + RUN * STRIPES);
      for (; row < run_end; row += STRIPES) {
        let i = row * partial.n + c;
        run += partial_grad_y[i] * (x[i] * partial_inv_rms[row]);
      }
      total += run;
    }
  }
  let sum = add_stripes(total, t);
  if (t < COLUMNS && c < partial.n) {
    partial_out[(partial.first_group + group.y) * partial.n + c] = sum;
  }
}

struct TotalParams {
  groups: u32,
  n: u32,
}

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
  let sum = add_stripes(total, t);
  if (t < COLUMNS && c < total_params.n) { grad_weight[c] += sum; }
}
