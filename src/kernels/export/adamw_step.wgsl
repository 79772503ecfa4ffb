// One step of AdamW (Loshchilov and Hutter 2019):
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p -= lr (m / c1 / (sqrt(v / c2) + eps) + weight_decay p)
// with c1, c2 the bias corrections 1 - b1^t, 1 - b2^t. p, g, m, v [n]; one element an invocation,
// element = x + y * 65535 * 256; updates p, m, v.

struct Params {
  n: u32,
  lr: f32,
  beta1: f32,
  beta2: f32,
  eps: f32,
  weight_decay: f32,
  bias_correction1: f32,
  bias_correction2: f32,
}

@group(0) @binding(0) var<storage, read_write> p: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> m: array<f32>;
@group(0) @binding(3) var<storage, read_write> v: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

// 1 - beta, where beta is the f32 nearest to a decimal of at most six digits: 1 minus the decimal.
// The difference from 1 - (beta as rounded) is 1e-5 of it for 0.999, and shows after many steps.
fn complement(beta: f32) -> f32 {
  let exact = 1.0 - beta;
  let decimal = round(exact * 1e6) / 1e6;
  return select(exact, decimal, abs(exact - decimal) <= 0x1p-25);
}

// A product as it is rounded on its own: the compiler, which does not know that eps has no sign,
// cannot fuse it with the sum that follows. Fused and separate roundings drift apart over steps.
fn rounded(x: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(x) ^ (bitcast<u32>(params.eps) >> 31u));
}

// Division and square root with one step of correction: WGSL's own may err by 2.5 ulp.
fn divide(a: f32, b: f32) -> f32 {
  let q = a / b;
  return q + fma(-q, b, a) / b;
}

fn square_root(x: f32) -> f32 {
  let s = sqrt(x);
  return s + fma(-s, s, x) / max(2.0 * s, 1e-30);
}

@compute @workgroup_size(256)
fn adamw_step(@builtin(workgroup_id) group: vec3<u32>,
              @builtin(num_workgroups) groups: vec3<u32>,
              @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i >= params.n) { return; }
  let m_next = rounded(params.beta1 * m[i]) + rounded(complement(params.beta1) * g[i]);
  let v_next =
      rounded(params.beta2 * v[i]) + rounded(complement(params.beta2) * rounded(g[i] * g[i]));
  m[i] = m_next;
  v[i] = v_next;
  let denominator = square_root(divide(v_next, params.bias_correction2)) + params.eps;
  let direction = divide(divide(m_next, params.bias_correction1), denominator);
  p[i] = rounded(p[i] * (1.0 - params.lr * params.weight_decay)) - rounded(params.lr * direction);
}
