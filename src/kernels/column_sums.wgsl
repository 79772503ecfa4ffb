// partial[part, j] = sum of x[i, j] over 64 rows i of the part, in a fixed order.
//
// x        f32 [rows, n]
// partial  f32 [parts, n], set
// A workgroup sums 64 columns of one part with 4 invocations a column. Added over the parts it
// equals cpu::bias_backward.

struct Params {
  rows: u32,
  n: u32,
  x_offset: u32,
  first_part: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> partial: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;

var<workgroup> sums: array<f32, 256>;

@compute @workgroup_size(256)
fn column_sums(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
               @builtin(local_invocation_index) t: u32) {
  let across = (p.n + 63u) / 64u;
  let id = wg.x + wg.y * grid.x;
  let part = id / across;
  let column = id % across * 64u + t % 64u;
  var sum = 0.0;
  if (column < p.n) {
    for (var i = part * 64u + t / 64u; i < min(p.rows, part * 64u + 64u); i += 4u) {
      sum += x[p.x_offset + i * p.n + column];
    }
  }
  sums[t] = sum;
  workgroupBarrier();
  if (t < 64u && column < p.n && part * 64u < p.rows) {
    partial[(p.first_part + part) * p.n + column] =
        (sums[t] + sums[t + 64u]) + (sums[t + 128u] + sums[t + 192u]);
  }
}
