// Pointwise activations over n Vecs, one an invocation. s is the logistic function.
//   silu_forward:    y = x s(x)
//   silu_backward:   grad_x = grad_y s(x) (1 + x (1 - s(x)))
//   swiglu_forward:  y = silu(gate) up                              (Shazeer 2020)
//   swiglu_backward: grad_gate = grad_y up silu'(gate);  grad_up = grad_y silu(gate)
// All set their outputs, finite for every finite x. Equal to the functions of cpu/activation.h.
// Prelude: lib_vector1 or lib_vector4.

struct Params {
  n: u32,
}

// Past this the logistic function is 0 or 1 in f32, and exp() would overflow.
const EDGE: f32 = 80.0;

struct Logistic {
  value: Vec,       // s(x)
  complement: Vec,  // 1 - s(x), without cancellation
}

fn logistic(x: Vec) -> Logistic {
  let e = exp(-min(abs(x), Vec(EDGE)));
  let larger = Vec(1.0) / (Vec(1.0) + e);
  let smaller = e * larger;
  let positive = x >= Vec(0.0);
  return Logistic(select(smaller, larger, positive), select(larger, smaller, positive));
}

fn silu(x: Vec, s: Logistic) -> Vec {
  return select(x * s.value, Vec(0.0), x < Vec(-EDGE));
}

fn silu_slope(x: Vec, s: Logistic) -> Vec {
  return s.value * (Vec(1.0) + clamp(x, Vec(-EDGE), Vec(EDGE)) * s.complement);
}

fn element(group: vec3<u32>, groups: vec3<u32>, t: u32) -> u32 {
  return (group.x + group.y * groups.x) * 256u + t;
}

@group(0) @binding(0) var<storage, read> x: array<Vec>;
@group(0) @binding(1) var<storage, read_write> y: array<Vec>;
@group(0) @binding(2) var<uniform> params2: Params;

@compute @workgroup_size(256)
fn silu_forward(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(num_workgroups) groups: vec3<u32>,
                @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  if (i >= params2.n) { return; }
  let v = x[i];
  y[i] = silu(v, logistic(v));
}

@group(0) @binding(1) var<storage, read> grad_y: array<Vec>;
@group(0) @binding(2) var<storage, read_write> grad_x: array<Vec>;
@group(0) @binding(3) var<uniform> params3: Params;

@compute @workgroup_size(256)
fn silu_backward(@builtin(workgroup_id) group: vec3<u32>,
                 @builtin(num_workgroups) groups: vec3<u32>,
                 @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  if (i >= params3.n) { return; }
  let v = x[i];
  grad_x[i] = grad_y[i] * silu_slope(v, logistic(v));
}

@group(0) @binding(0) var<storage, read> gate: array<Vec>;
@group(0) @binding(1) var<storage, read> up: array<Vec>;
@group(0) @binding(2) var<storage, read_write> product: array<Vec>;

@compute @workgroup_size(256)
fn swiglu_forward(@builtin(workgroup_id) group: vec3<u32>,
                  @builtin(num_workgroups) groups: vec3<u32>,
                  @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  if (i >= params3.n) { return; }
  let g = gate[i];
  product[i] = silu(g, logistic(g)) * up[i];
}

@group(0) @binding(2) var<storage, read> grad_product: array<Vec>;
@group(0) @binding(3) var<storage, read_write> grad_gate: array<Vec>;
@group(0) @binding(4) var<storage, read_write> grad_up: array<Vec>;
@group(0) @binding(5) var<uniform> params5: Params;

@compute @workgroup_size(256)
fn swiglu_backward(@builtin(workgroup_id) group: vec3<u32>,
                   @builtin(num_workgroups) groups: vec3<u32>,
                   @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  if (i >= params5.n) { return; }
  let g = gate[i];
  let s = logistic(g);
  let d = grad_product[i];
  grad_gate[i] = d * up[i] * silu_slope(g, s);
  grad_up[i] = d * silu(g, s);
}
