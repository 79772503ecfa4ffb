// AdamW (Loshchilov and Hutter 2019) over n Vecs, one an invocation; updates p, m, v in place.
//   g' = state[1] g;  m = b1 m + (1 - b1) g';  v = b2 v + (1 - b2) g'^2
//   p -= lr (m / c1 / (sqrt(v / c2) + eps) + weight_decay p)
// state f32 [4] comes from norm_total of reduction.wgsl; where state[2] is 0 nothing is done.
// 1 - b1 and 1 - b2 come from the host, which has them unrounded. Equal to cpu::adamw_step.
// Prelude: lib_vector1 or lib_vector4.

struct Params {
  n: u32,
  learning_rate: f32,
  beta1: f32,
  one_minus_beta1: f32,
  beta2: f32,
  one_minus_beta2: f32,
  eps: f32,
  weight_decay: f32,
  bias_correction1: f32,
  bias_correction2: f32,
}

@group(0) @binding(0) var<storage, read> state: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<Vec>;
@group(0) @binding(2) var<storage, read_write> p: array<Vec>;
@group(0) @binding(3) var<storage, read_write> m: array<Vec>;
@group(0) @binding(4) var<storage, read_write> v: array<Vec>;
@group(0) @binding(5) var<uniform> params: Params;

@compute @workgroup_size(256)
fn adamw_step(@builtin(workgroup_id) group: vec3<u32>,
              @builtin(num_workgroups) groups: vec3<u32>,
              @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i >= params.n || state[2] == 0.0) { return; }
  let gradient = g[i] * state[1];
  let m_next = params.beta1 * m[i] + params.one_minus_beta1 * gradient;
  let v_next = params.beta2 * v[i] + params.one_minus_beta2 * gradient * gradient;
  m[i] = m_next;
  v[i] = v_next;
  let direction = m_next / params.bias_correction1 /
                  (sqrt(v_next / params.bias_correction2) + Vec(params.eps));
  let held = p[i];
  p[i] = held - params.learning_rate * (direction + params.weight_decay * held);
}
