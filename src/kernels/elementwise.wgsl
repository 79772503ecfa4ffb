// Pointwise operations over n Vecs, one an invocation.
//   add:   y += x           (cpu::add)
//   scale: y *= factor      (cpu::scale)
// Prelude: lib_vector1 or lib_vector4.

struct Params {
  n: u32,
  factor: f32,
}

@group(0) @binding(0) var<storage, read> x: array<Vec>;
@group(0) @binding(1) var<storage, read_write> y: array<Vec>;
@group(0) @binding(2) var<uniform> add_params: Params;

@compute @workgroup_size(256)
fn add(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
       @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < add_params.n) { y[i] += x[i]; }
}

@group(0) @binding(0) var<storage, read_write> scaled: array<Vec>;
@group(0) @binding(1) var<uniform> scale_params: Params;

@compute @workgroup_size(256)
fn scale(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
         @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < scale_params.n) { scaled[i] *= scale_params.factor; }
}
