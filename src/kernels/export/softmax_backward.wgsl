// Gradient of y = softmax(x) over each row of [num_rows, row_len]: dx = y (dy - sum(y dy)).
// y, dy, dx [num_rows, row_len]; a workgroup a row, row = x + y * 65535; sets dx.

struct Params {
  num_rows: u32,
  row_len: u32,
}

@group(0) @binding(0) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read> dy: array<f32>;
@group(0) @binding(2) var<storage, read_write> dx: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

const RUN: u32 = 32u;  // terms added before they join the total
var<workgroup> slots: array<f32, 256>;

@compute @workgroup_size(256)
fn softmax_backward(@builtin(workgroup_id) group: vec3<u32>,
                    @builtin(num_workgroups) groups: vec3<u32>,
                    @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let n = select(0u, params.row_len, row < params.num_rows);
  let base = row * params.row_len;
  var total = 0.0;
  var c = t;
  while (c < n) {
    var run = 0.0;
    for (var k = 0u; k < RUN && c < n; k++) {
      run += y[base + c] * dy[base + c];
      c += 256u;
    }
    total += run;
  }
  slots[t] = total;
  for (var step = 128u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (t < step) { slots[t] += slots[t + step]; }
  }
  workgroupBarrier();
  let sum = slots[0];
  for (c = t; c < n; c += 256u) { dx[base + c] = y[base + c] * (dy[base + c] - sum); }
}
