// Gradients of y = g x / r, r = sqrt(mean(x^2) + eps), over rows of [num_rows, hidden_dim].
//   dx = (g dy - x mean(x g dy) / r^2) / r;  dg += sum over rows of dy x / r
// x, dy, dx [num_rows, hidden_dim]; g, dg [hidden_dim]; dg holds the bits of f32. Three entry
// points, to be dispatched in this order:
//   inverse_rms: a workgroup a row keeps 1 / r in the row's first element of dx;
//   weight_gradient: a workgroup 32 columns adds to dg over all rows, in a fixed order;
//   input_gradient: a workgroup a row sets dx.
// row = x + y * 65535. The same bits every run.

struct Params {
  num_rows: u32,
  hidden_dim: u32,
  eps: f32,
  pad: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read> dy: array<f32>;
@group(0) @binding(3) var<storage, read_write> dx: array<f32>;
@group(0) @binding(4) var<storage, read_write> dg: array<u32>;
@group(0) @binding(5) var<uniform> params: Params;

const RUN: u32 = 32u;  // terms added before they join the total
var<workgroup> slots: array<f32, 256>;

fn sum(value: f32, t: u32) -> f32 {
  slots[t] = value;
  for (var step = 128u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (t < step) { slots[t] += slots[t + step]; }
  }
  workgroupBarrier();
  return slots[0];
}

@compute @workgroup_size(256)
fn inverse_rms(@builtin(workgroup_id) group: vec3<u32>,
               @builtin(num_workgroups) groups: vec3<u32>,
               @builtin(local_invocation_index) t: u32) {
  _ = &g; _ = &dy; _ = &dg;  // so that all entry points have one interface
  let row = group.x + group.y * groups.x;
  let n = select(0u, params.hidden_dim, row < params.num_rows);
  let base = row * params.hidden_dim;
  var total = 0.0;
  var c = t;
  while (c < n) {
    var run = 0.0;
    for (var k = 0u; k < RUN && c < n; k++) {
      run += x[base + c] * x[base + c];
      c += 256u;
    }
    total += run;
  }
  let squares = sum(total, t);
  if (t == 0u && n > 0u) {
    dx[base] = inverseSqrt(squares / f32(params.hidden_dim) + params.eps);
  }
}

@compute @workgroup_size(256)
fn weight_gradient(@builtin(workgroup_id) group: vec3<u32>,
                   @builtin(local_invocation_index) t: u32) {
  _ = &g;
  let c = group.x * 32u + t % 32u;
  let rows = select(0u, params.num_rows, c < params.hidden_dim);
  var total = 0.0;
  var row = t / 32u;
  while (row < rows) {
    var run = 0.0;
    for (var k = 0u; k < RUN && row < rows; k++) {
      let base = row * params.hidden_dim;
      run += dy[base + c] * (x[base + c] * dx[base]);
      row += 8u;
    }
    total += run;
  }
  slots[t] = total;
  workgroupBarrier();
  if (t < 32u && c < params.hidden_dim) {
    var column = slots[t];
    for (var i = 1u; i < 8u; i++) { column += slots[t + i * 32u]; }
    dg[c] = bitcast<u32>(bitcast<f32>(dg[c]) + column);
  }
}

@compute @workgroup_size(256)
fn input_gradient(@builtin(workgroup_id) group: vec3<u32>,
                  @builtin(num_workgroups) groups: vec3<u32>,
                  @builtin(local_invocation_index) t: u32) {
  _ = &dg;
  let row = group.x + group.y * groups.x;
  let n = select(0u, params.hidden_dim, row < params.num_rows);
  let base = row * params.hidden_dim;
  var inverse = 0.0;
  if (n > 0u) { inverse = dx[base]; }
  var total = 0.0;
  var c = t;
  while (c < n) {
    var run = 0.0;
    for (var k = 0u; k < RUN && c < n; k++) {
      run += x[base + c] * inverse * (g[c] * dy[base + c]);
      c += 256u;
    }
    total += run;
  }
  // The sum's barriers also keep 1 / r from being overwritten before all have read it.
  let mean = sum(total, t) / f32(params.hidden_dim);
  for (c = t; c < n; c += 256u) {
    dx[base + c] = (g[c] * dy[base + c] - x[base + c] * inverse * mean) * inverse;
  }
}
