// Pointwise activations over n Vecs. s is the logistic function.
//   silu_forward:    y = x s(x)
//   silu_backward:   grad_x = grad_y s(x) (1 + x (1 - s(x)))
//   gated_forward:   y = act(gate) up                               (Shazeer 2020)
//   gated_backward:  grad_gate = grad_y up act'(gate);  grad_up = grad_y act(gate)
// act is the activation of the prelude.
// All set their outputs, finite for every finite x. Equal to the functions of cpu/activation.h.
// A workgroup takes 256 RUN neighbouring Vecs and an invocation every 256th of them: its loads are
// under way at once. gated_backward has enough of them with one Vec an invocation.
// Prelude: lib_vector1 or lib_vector4, lib_silu (for the gated ones also lib_gelu_tanh or lib_gelu).

const RUN: u32 = 2u;

struct Params {
  n: u32,
}

// The first Vec of an invocation that takes `run`.
fn element(group: vec3<u32>, groups: vec3<u32>, t: u32, run: u32) -> u32 {
  return (group.x + group.y * groups.x) * (256u * run) + t;
}

@group(0) @binding(0) var<storage, read> x: array<Vec>;
@group(0) @binding(1) var<storage, read_write> y: array<Vec>;
@group(0) @binding(2) var<uniform> params2: Params;

@compute @workgroup_size(256)
fn silu_forward(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(num_workgroups) groups: vec3<u32>,
                @builtin(local_invocation_index) t: u32) {
  let first = element(group, groups, t, RUN);
  var values: array<Vec, RUN>;
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params2.n) { values[k] = x[i]; }
  }
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params2.n) { y[i] = activate(values[k], sigmoid(values[k])); }
  }
}

@group(0) @binding(1) var<storage, read> grad_y: array<Vec>;
@group(0) @binding(2) var<storage, read_write> grad_x: array<Vec>;
@group(0) @binding(3) var<uniform> params3: Params;

@compute @workgroup_size(256)
fn silu_backward(@builtin(workgroup_id) group: vec3<u32>,
                 @builtin(num_workgroups) groups: vec3<u32>,
                 @builtin(local_invocation_index) t: u32) {
  let first = element(group, groups, t, RUN);
  var values: array<Vec, RUN>;
  var grads: array<Vec, RUN>;
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params3.n) {
      values[k] = x[i];
      grads[k] = grad_y[i];
    }
  }
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params3.n) { grad_x[i] = grads[k] * activation_slope(values[k], sigmoid(values[k])); }
  }
}

@group(0) @binding(0) var<storage, read> gate: array<Vec>;
@group(0) @binding(1) var<storage, read> up: array<Vec>;
@group(0) @binding(2) var<storage, read_write> product: array<Vec>;

@compute @workgroup_size(256)
fn gated_forward(@builtin(workgroup_id) group: vec3<u32>,
                  @builtin(num_workgroups) groups: vec3<u32>,
                  @builtin(local_invocation_index) t: u32) {
  let first = element(group, groups, t, RUN);
  var gates: array<Vec, RUN>;
  var ups: array<Vec, RUN>;
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params3.n) {
      gates[k] = gate[i];
      ups[k] = up[i];
    }
  }
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params3.n) { product[i] = activate(gates[k], sigmoid(gates[k])) * ups[k]; }
  }
}

@group(0) @binding(2) var<storage, read> grad_product: array<Vec>;
@group(0) @binding(3) var<storage, read_write> grad_gate: array<Vec>;
@group(0) @binding(4) var<storage, read_write> grad_up: array<Vec>;
@group(0) @binding(5) var<uniform> params5: Params;

@compute @workgroup_size(256)
fn gated_backward(@builtin(workgroup_id) group: vec3<u32>,
                   @builtin(num_workgroups) groups: vec3<u32>,
                   @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t, 1u);
  if (i >= params5.n) { return; }
  let g = gate[i];
  let s = sigmoid(g);
  let d = grad_product[i];
  grad_gate[i] = d * up[i] * activation_slope(g, s);
  grad_up[i] = d * activate(g, s);
}
