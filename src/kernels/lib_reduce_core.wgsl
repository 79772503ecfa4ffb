// Reductions of one f32 an invocation over a workgroup, by workgroup memory alone.
//   workgroup_sum(value, lane), workgroup_max(value, lane): every invocation gets the result.
// `lane` is the local invocation index; kWorkgroupSize, the number of invocations, comes from the
// prelude and may be any number. To be called in uniform control flow. The order of the sum is
// fixed, so its bits are too.
// Partial p reduces the values p, p + 16, p + 32, ...; then every invocation reduces the partials.
const kReducePartials = min(16u, kWorkgroupSize);

var<workgroup> reduce_values: array<f32, kWorkgroupSize>;
var<workgroup> reduce_partials: array<f32, kReducePartials>;

fn workgroup_sum(value: f32, lane: u32) -> f32 {
  reduce_values[lane] = value;
  workgroupBarrier();
  if lane < kReducePartials {
    var partial = reduce_values[lane];
    for (var i = lane + kReducePartials; i < kWorkgroupSize; i += kReducePartials) {
      partial += reduce_values[i];
    }
    reduce_partials[lane] = partial;
  }
  workgroupBarrier();
  var sum = reduce_partials[0];
  for (var i = 1u; i < kReducePartials; i++) {
    sum += reduce_partials[i];
  }
  return sum;
}

fn workgroup_max(value: f32, lane: u32) -> f32 {
  reduce_values[lane] = value;
  workgroupBarrier();
  if lane < kReducePartials {
    var partial = reduce_values[lane];
    for (var i = lane + kReducePartials; i < kWorkgroupSize; i += kReducePartials) {
      partial = max(partial, reduce_values[i]);
    }
    reduce_partials[lane] = partial;
  }
  workgroupBarrier();
  var largest = reduce_partials[0];
  for (var i = 1u; i < kReducePartials; i++) {
    largest = max(largest, reduce_partials[i]);
  }
  return largest;
}
