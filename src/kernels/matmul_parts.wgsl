// C[row, col] = alpha sum_s parts[s, row, col] (+ bias[col]) (+ C[row, col]), s in ascending order:
// the second stage of a product whose reduction was cut.
//
// parts  f32 [parts, m, n]
// bias   f32 [n], read where has_bias
// c      f32, rows ldc apart; set, or added to where accumulate
// An invocation computes one element. Equal to the last step of cpu::matmul.

struct Params {
  count: u32,  // m n
  n: u32,
  parts: u32,
  ldc: u32,
  c_offset: u32,
  bias_offset: u32,
  accumulate: u32,
  has_bias: u32,
  alpha: f32,
}

@group(0) @binding(0) var<storage, read> parts: array<f32>;
@group(0) @binding(1) var<storage, read> bias: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;

@compute @workgroup_size(256)
fn sum_parts(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
             @builtin(local_invocation_index) t: u32) {
  let i = (wg.x + wg.y * grid.x) * 256u + t;
  if (i >= p.count) {
    return;
  }
  var sum = 0.0;
  for (var s = 0u; s < p.parts; s++) {
    sum += parts[s * p.count + i];
  }
  let row = i / p.n;
  let col = i - row * p.n;
  let g = p.c_offset + row * p.ldc + col;
  var value = p.alpha * sum;
  if (p.has_bias != 0u) {
    value += bias[p.bias_offset + col];
  }
  if (p.accumulate != 0u) {
    value += c[g];
  }
  c[g] = value;
}
