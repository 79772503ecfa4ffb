// AdamW (Loshchilov and Hutter 2019) over n Vecs, one an invocation; updates p, m, v in place.
//   g' = state[1] g;  m = b1 m + (1 - b1) g';  v = b2 v + (1 - b2) g'^2
//   p = p (1 - lr weight_decay) - lr / c1 m / (sqrt(v / c2) + eps)
// state f32 [4] comes from norm_total of reduction.wgsl; where state[2] is 0 nothing is done.
// The step's constants come from the host, computed in double and rounded once, as PyTorch has
// them: over thousands of steps their roundings add up. Equal to cpu::adamw_step.
// Prelude: lib_vector1 or lib_vector4.

struct Params {
  n: u32,
  beta1: f32,
  one_minus_beta1: f32,
  beta2: f32,
  one_minus_beta2: f32,
  step_size: f32,        // lr / c1
  inv_correction2: f32,  // 1 / sqrt(c2)
  eps: f32,
  kept: f32,  // 1 - lr weight_decay
  zero: u32,  // 0; see rounded()
}

@group(0) @binding(0) var<storage, read> state: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<Vec>;
@group(0) @binding(2) var<storage, read_write> p: array<Vec>;
@group(0) @binding(3) var<storage, read_write> m: array<Vec>;
@group(0) @binding(4) var<storage, read_write> v: array<Vec>;
@group(0) @binding(5) var<uniform> params: Params;

// A product as it is rounded on its own: the compiler, which does not know that zero is 0, cannot
// fuse it with the sum that follows. Fused and separate roundings drift apart over many steps.
fn rounded(x: Vec) -> Vec {
  return bitcast<Vec>(bitcast<VecU>(x) ^ VecU(params.zero));
}

// Division and square root with one step of correction: WGSL's own may err by 2.5 ulp.
fn divide(a: Vec, b: Vec) -> Vec {
  let q = a / b;
  return q + fma(-q, b, a) / b;
}

fn square_root(x: Vec) -> Vec {
  let s = sqrt(x);
  return s + fma(-s, s, x) / max(2.0 * s, Vec(1e-30));
}

@compute @workgroup_size(256)
fn adamw_step(@builtin(workgroup_id) group: vec3<u32>,
              @builtin(num_workgroups) groups: vec3<u32>,
              @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i >= params.n || state[2] == 0.0) { return; }
  let gradient = g[i] * state[1];
  let m_next = rounded(params.beta1 * m[i]) + rounded(params.one_minus_beta1 * gradient);
  let v_next = rounded(params.beta2 * v[i]) +
               rounded(params.one_minus_beta2 * rounded(gradient * gradient));
  m[i] = m_next;
  v[i] = v_next;
  let denominator = rounded(square_root(v_next) * params.inv_correction2) + Vec(params.eps);
  p[i] = rounded(p[i] * params.kept) -
         rounded(params.step_size * divide(m_next, denominator));
}
