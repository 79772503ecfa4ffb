// Pointwise operations over n Vecs.
//   add:         y += x             (cpu::add)
//   add_scaled:  y += factor x      (cpu::add_scaled)
//   scaled_copy: y = factor x       (cpu::scaled_copy)
//   scale:       y *= factor        (cpu::scale)
//   copy:        the bits of x, whatever their type
// A workgroup takes 256 RUN neighbouring Vecs and an invocation every 256th of them: its loads are
// under way at once, which one Vec an invocation would not keep the memory busy with.
// Prelude: lib_vector1 or lib_vector4.

const RUN: u32 = 4u;

struct Params {
  n: u32,
  factor: f32,
}

fn first_element(group: vec3<u32>, groups: vec3<u32>, t: u32) -> u32 {
  return (group.x + group.y * groups.x) * (256u * RUN) + t;
}

@group(0) @binding(0) var<storage, read> x: array<Vec>;
@group(0) @binding(1) var<storage, read_write> y: array<Vec>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(256)
fn add(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
       @builtin(local_invocation_index) t: u32) {
  let first = first_element(group, groups, t);
  var sums: array<Vec, RUN>;
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params.n) { sums[k] = y[i] + x[i]; }
  }
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params.n) { y[i] = sums[k]; }
  }
}

@compute @workgroup_size(256)
fn add_scaled(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
              @builtin(local_invocation_index) t: u32) {
  let first = first_element(group, groups, t);
  var sums: array<Vec, RUN>;
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params.n) { sums[k] = y[i] + params.factor * x[i]; }
  }
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params.n) { y[i] = sums[k]; }
  }
}

@compute @workgroup_size(256)
fn scaled_copy(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
               @builtin(local_invocation_index) t: u32) {
  let first = first_element(group, groups, t);
  var values: array<Vec, RUN>;
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params.n) { values[k] = params.factor * x[i]; }
  }
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params.n) { y[i] = values[k]; }
  }
}

@group(0) @binding(0) var<storage, read_write> scaled: array<Vec>;
@group(0) @binding(1) var<uniform> scale_params: Params;

@compute @workgroup_size(256)
fn scale(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
         @builtin(local_invocation_index) t: u32) {
  let first = first_element(group, groups, t);
  var values: array<Vec, RUN>;
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < scale_params.n) { values[k] = scaled[i] * scale_params.factor; }
  }
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < scale_params.n) { scaled[i] = values[k]; }
  }
}

@group(0) @binding(0) var<storage, read> bits: array<VecU>;
@group(0) @binding(1) var<storage, read_write> bits_out: array<VecU>;

@compute @workgroup_size(256)
fn copy(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let first = first_element(group, groups, t);
  var values: array<VecU, RUN>;
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params.n) { values[k] = bits[i]; }
  }
  for (var k = 0u; k < RUN; k++) {
    let i = first + k * 256u;
    if (i < params.n) { bits_out[i] = values[k]; }
  }
}
