// Reductions of one f32 an invocation over a workgroup, by subgroups.
//   workgroup_sum(value, lane), workgroup_max(value, lane): every invocation gets the result.
// `lane` is the local invocation index; kWorkgroupSize, the number of invocations, comes from the
// prelude and is a multiple of the subgroup's size. To be called in uniform control flow. Neither
// the size of a subgroup nor which invocations form one is assumed: the total of each stands at
// the place of its first invocation, and every subgroup then reduces these places. On one device
// the order is fixed, so the bits are too.
const kReduceLowest = -3.4028234663852886e38;

var<workgroup> reduce_values: array<f32, kWorkgroupSize>;

fn workgroup_sum(value: f32, lane: u32) -> f32 {
  let total = subgroupAdd(value);
  let is_first = lane == subgroupMin(lane);
  workgroupBarrier();
  reduce_values[lane] = select(0.0, total, is_first);
  workgroupBarrier();
  let step = subgroupAdd(1u);
  var sum = 0.0;
  for (var i = subgroupExclusiveAdd(1u); i < kWorkgroupSize; i += step) {
    sum += reduce_values[i];
  }
  return subgroupAdd(sum);
}

fn workgroup_max(value: f32, lane: u32) -> f32 {
  let total = subgroupMax(value);
  let is_first = lane == subgroupMin(lane);
  workgroupBarrier();
  reduce_values[lane] = select(kReduceLowest, total, is_first);
  workgroupBarrier();
  let step = subgroupAdd(1u);
  var largest = kReduceLowest;
  for (var i = subgroupExclusiveAdd(1u); i < kWorkgroupSize; i += step) {
    largest = max(largest, reduce_values[i]);
  }
  return subgroupMax(largest);
}
