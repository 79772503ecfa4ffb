// x <- cap tanh(factor x) over n Vecs, in place. One invocation a Vec. A value that is not finite
// stays, so that a loss shows it. Equal to cpu::map_logits with factor = scale / cap.
// Prelude: lib_vector1 or lib_vector4, lib_tanh.

struct Params {
  n: u32,
  factor: f32,
  cap: f32,
}

@group(0) @binding(0) var<storage, read_write> x: array<Vec>;
@group(0) @binding(1) var<uniform> params: Params;

@compute @workgroup_size(256)
fn soft_cap(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
            @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i >= params.n) { return; }
  let value = x[i];
  let finite = (bitcast<VecU>(value) & VecU(0x7f800000u)) != VecU(0x7f800000u);
  x[i] = select(value, params.cap * good_tanh(value * params.factor), finite);
}
