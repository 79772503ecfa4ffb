// Placed before kernels that reduce over a row shared by WIDTH neighbouring invocations (a power of
// two) of a workgroup of 256. Trees over workgroup memory; every invocation gets the result.
// lib_row_reduce_subgroups.wgsl is the same for devices with subgroups of one size.
override WIDTH: u32 = 256u;
var<workgroup> reduce_slots: array<f32, 256>;

fn row_sum(value: f32, t: u32) -> f32 {
  workgroupBarrier();
  reduce_slots[t] = value;
  for (var step = WIDTH / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (t % WIDTH < step) { reduce_slots[t] += reduce_slots[t + step]; }
  }
  workgroupBarrier();
  return reduce_slots[t - t % WIDTH];
}

fn row_max(value: f32, t: u32) -> f32 {
  workgroupBarrier();
  reduce_slots[t] = value;
  for (var step = WIDTH / 2u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (t % WIDTH < step) { reduce_slots[t] = max(reduce_slots[t], reduce_slots[t + step]); }
  }
  workgroupBarrier();
  return reduce_slots[t - t % WIDTH];
}
