// Sums over a whole tensor in two stages of fixed order.
//   sum_partial:   partial[group] = sum of x over the group's share
//   sum_total:     out[0] = sum of partial (+ out[0] where ACCUMULATE)                  (ops::sum)
//   norm_partial:  partial[group] = sums of squares of x over the group's share
//   norm_total:    state = {norm, factor, finite, loss}                       (ops::gradient_norm)
// A group's share is n_per_group Vecs. Runs of RUN Vecs are added before they join the total, so
// that the error hardly grows with the length.
//
// Squares are summed in three ranges, each scaled by a power of two, so that no finite gradient
// overflows or vanishes: |x| >= 2^40 times 2^-75, |x| < 2^-40 times 2^60, and the rest as it is.
// A norm partial is {large, middle, small, count of values that are not finite}.
// One workgroup a group; *_total are one workgroup.
// Prelude: lib_vector1 or lib_vector4, lib_row_reduce_core or lib_row_reduce_subgroups (WIDTH 256).

override ACCUMULATE: bool = false;

struct PartialParams {
  n: u32,
  n_per_group: u32,
  first_group: u32,  // partials before this dispatch's
}

const RUN: u32 = 16u;

@group(0) @binding(0) var<storage, read> x: array<Vec>;
@group(0) @binding(1) var<storage, read_write> partial_out: array<f32>;
@group(0) @binding(2) var<uniform> params: PartialParams;

@compute @workgroup_size(256)
fn sum_partial(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  let end = min(params.n, (group.x + 1u) * params.n_per_group);
  var i = group.x * params.n_per_group + t;
  var total = Vec();
  while (i < end) {
    var run = Vec();
    let run_end = min(end, i + RUN * 256u);
    for (; i < run_end; i += 256u) { run += x[i]; }
    total += run;
  }
  let sum = row_sum(lanes_sum(total), t);
  if (t == 0u) { partial_out[params.first_group + group.x] = sum; }
}

struct TotalParams {
  groups: u32,
  max_norm: f32,
}

@group(0) @binding(0) var<storage, read> partial_in: array<f32>;
@group(0) @binding(1) var<storage, read_write> sum_out: array<f32>;
@group(0) @binding(2) var<uniform> sum_params: TotalParams;

@compute @workgroup_size(256)
fn sum_total(@builtin(local_invocation_index) t: u32) {
  var total = 0.0;
  for (var g = t; g < sum_params.groups; g += 256u) { total += partial_in[g]; }
  let sum = row_sum(total, t);
  if (t != 0u) { return; }
  if (ACCUMULATE) {
    sum_out[0] += sum;
  } else {
    sum_out[0] = sum;
  }
}

const LARGE: f32 = 0x1p40;
const SMALL: f32 = 0x1p-40;

@group(0) @binding(1) var<storage, read_write> norm_partial_out: array<vec4<f32>>;

fn count_bad(v: Vec) -> f32 {
  var bad = 0.0;
  for (var k = 0u; k < LANES; k++) {
    if ((bitcast<u32>(lane(v, k)) & 0x7f800000u) == 0x7f800000u) { bad += 1.0; }
  }
  return bad;
}

struct Squares {
  large: Vec,
  run: Vec,  // of the middle range
  small: Vec,
  bad: f32,
}

fn add_squares(sums: ptr<function, Squares>, v: Vec) {
  // By bits, so that what is not finite lies past LARGE.
  let size = bitcast<VecU>(v) & VecU(0x7fffffffu);
  let low = VecU(bitcast<u32>(SMALL));
  if (all(size - low < VecU(bitcast<u32>(LARGE)) - low)) {
    (*sums).run += v * v;  // as what follows would
    return;
  }
  if (all(size == VecU(0u))) { return; }
  (*sums).bad += count_bad(v);
  let is_large = abs(v) >= Vec(LARGE);
  let is_small = abs(v) < Vec(SMALL);
  let scaled = v * select(select(Vec(1.0), Vec(0x1p60), is_small), Vec(0x1p-75), is_large);
  let square = scaled * scaled;
  (*sums).large += select(Vec(0.0), square, is_large);
  (*sums).small += select(Vec(0.0), square, is_small);
  (*sums).run += select(select(square, Vec(0.0), is_small), Vec(0.0), is_large);
}

@compute @workgroup_size(256)
fn norm_partial(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  let end = min(params.n, (group.x + 1u) * params.n_per_group);
  var i = group.x * params.n_per_group + t;
  var sums = Squares();
  var middle = Vec();
  while (i < end) {
    let run_end = min(end, i + RUN * 256u);
    for (; i + 768u < run_end; i += 1024u) {
      // Four at once: one after the other they would wait for memory each.
      let a = x[i];
      let b = x[i + 256u];
      let c = x[i + 512u];
      let d = x[i + 768u];
      add_squares(&sums, a);
      add_squares(&sums, b);
      add_squares(&sums, c);
      add_squares(&sums, d);
    }
    for (; i < run_end; i += 256u) { add_squares(&sums, x[i]); }
    middle += sums.run;
    sums.run = Vec();
  }
  let large_sum = row_sum(lanes_sum(sums.large), t);
  let middle_sum = row_sum(lanes_sum(middle), t);
  let small_sum = row_sum(lanes_sum(sums.small), t);
  let bad_sum = row_sum(sums.bad, t);
  if (t == 0u) {
    norm_partial_out[params.first_group + group.x] =
        vec4<f32>(large_sum, middle_sum, small_sum, bad_sum);
  }
}

@group(0) @binding(0) var<storage, read> norm_partial_in: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> loss: array<f32>;
@group(0) @binding(2) var<storage, read_write> state: array<f32>;
@group(0) @binding(3) var<uniform> norm_params: TotalParams;

const GREATEST: f32 = 3.4e38;  // stands for a norm that f32 does not hold

@compute @workgroup_size(256)
fn norm_total(@builtin(local_invocation_index) t: u32) {
  var total = vec4<f32>();
  for (var g = t; g < norm_params.groups; g += 256u) { total += norm_partial_in[g]; }
  let large = row_sum(total.x, t);
  let middle = row_sum(total.y, t);
  let small = row_sum(total.z, t);
  let bad = row_sum(total.w, t);
  if (t != 0u) { return; }

  var norm = sqrt(middle + small * 0x1p-120);
  if (middle == 0.0) { norm = sqrt(small) * 0x1p-60; }
  var holds = true;
  if (large > 0.0) {
    let root = sqrt(large + middle * 0x1p-75 * 0x1p-75);  // times 2^75 is the norm
    holds = root < 0x1p52;
    norm = min(root, 0x1p52) * 0x1p75;
  }
  let loss_bits = bitcast<u32>(loss[0]);
  let finite = bad == 0.0 && holds && (loss_bits & 0x7f800000u) != 0x7f800000u;
  var factor = 1.0;
  if (norm_params.max_norm > 0.0) {
    // Scaled down together: the reciprocal of a very large norm would be flushed to 0.
    let shrink = select(1.0, 0x1p-60, norm > 0x1p60);
    factor = min(1.0, (norm_params.max_norm * shrink) / ((norm + 1e-6) * shrink));
  }
  state[0] = select(GREATEST, norm, finite);
  state[1] = select(0.0, factor, finite);
  state[2] = select(0.0, 1.0, finite);
  state[3] = loss[0];
}
