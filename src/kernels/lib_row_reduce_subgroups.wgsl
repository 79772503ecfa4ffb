// The reductions of lib_row_reduce_core.wgsl by subgroups of SUBGROUP neighbouring invocations (a
// constant that the prelude gives): exchanges within a subgroup, then one round through workgroup
// memory.
override WIDTH: u32 = 256u;
var<workgroup> reduce_slots: array<f32, 256>;

fn row_sum(value: f32, t: u32) -> f32 {
  var total = value;
  for (var step = min(WIDTH, SUBGROUP) / 2u; step > 0u; step /= 2u) {
    total += subgroupShuffleXor(total, step);
  }
  if (WIDTH > SUBGROUP) {
    workgroupBarrier();
    if (t % SUBGROUP == 0u) { reduce_slots[t / SUBGROUP] = total; }
    workgroupBarrier();
    let first = (t - t % WIDTH) / SUBGROUP;
    total = reduce_slots[first];
    for (var i = 1u; i < WIDTH / SUBGROUP; i++) { total += reduce_slots[first + i]; }
  }
  return total;
}

fn row_max(value: f32, t: u32) -> f32 {
  var highest = value;
  for (var step = min(WIDTH, SUBGROUP) / 2u; step > 0u; step /= 2u) {
    highest = max(highest, subgroupShuffleXor(highest, step));
  }
  if (WIDTH > SUBGROUP) {
    workgroupBarrier();
    if (t % SUBGROUP == 0u) { reduce_slots[t / SUBGROUP] = highest; }
    workgroupBarrier();
    let first = (t - t % WIDTH) / SUBGROUP;
    highest = reduce_slots[first];
    for (var i = 1u; i < WIDTH / SUBGROUP; i++) { highest = max(highest, reduce_slots[first + i]); }
  }
  return highest;
}
