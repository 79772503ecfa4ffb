// C[i, j] = alpha sum_k A(i, k) B(k, j) (+ bias[j]) (+ C[i, j]) for small products, straight from
// memory. The strides say which of the operands is transposed.
//
// The prelude defines b_at(i), element i of the buffer b.
// a     f32
// b     f32, or f16 two to a word
// bias  f32 [n], read where flags has bit 1
// c     f32 [m, n], rows ldc apart; set, or added to where flags has bit 0
// An invocation computes one element, k ascending, as the tiled product does.
// Equal to cpu::matmul.

struct Params {
  m: u32,
  n: u32,
  k: u32,
  a_row: u32,
  a_step: u32,
  b_column: u32,
  b_step: u32,
  ldc: u32,
  a_offset: u32,
  b_offset: u32,
  c_offset: u32,
  bias_offset: u32,
  alpha: f32,
  flags: u32,
}

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;
@group(0) @binding(4) var<uniform> p: Params;

@compute @workgroup_size(256)
fn matmul_small(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
                @builtin(local_invocation_index) t: u32) {
  let id = (wg.x + wg.y * grid.x) * 256u + t;
  if (id >= p.m * p.n) {
    return;
  }
  let i = id / p.n;
  let j = id - i * p.n;
  var at_a = p.a_offset + i * p.a_row;
  var at_b = p.b_offset + j * p.b_column;
  var sum = 0.0;
  for (var k = 0u; k < p.k; k++) {
    sum = fma(a[at_a], b_at(at_b), sum);
    at_a += p.a_step;
    at_b += p.b_step;
  }
  var value = p.alpha * sum;
  if ((p.flags & 2u) != 0u) {
    value += bias[p.bias_offset + j];
  }
  let g = p.c_offset + i * p.ldc + j;
  if ((p.flags & 1u) != 0u) {
    value += c[g];
  }
  c[g] = value;
}
