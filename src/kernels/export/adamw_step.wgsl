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

@compute @workgroup_size(256)
fn adamw_step(@builtin(workgroup_id) group: vec3<u32>,
              @builtin(num_workgroups) groups: vec3<u32>,
              @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i >= params.n) { return; }
  let m_next = params.beta1 * m[i] + complement(params.beta1) * g[i];
  let v_next = params.beta2 * v[i] + complement(params.beta2) * (g[i] * g[i]);
  m[i] = m_next;
  v[i] = v_next;
  let direction = m_next / params.bias_correction1 /
                  (sqrt(v_next / params.bias_correction2) + params.eps);
  p[i] = p[i] * (1.0 - params.lr * params.weight_decay) - params.lr * direction;
}
