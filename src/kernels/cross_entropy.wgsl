// Cross-entropy of a row of logits with a label, and its gradient in place.
//   lse = logsumexp(logits[p, :]);  loss = lse - logits[p, label]
//   logits <- (exp(logit - lse) - [v = label]) scale, times 1 - (logit / LOGIT_CAP)^2 where the
//             logits have been capped (LOGIT_CAP > 0)
// Positions outside [loss_start, loss_end) and labels outside the vocabulary (so -100, read as u32)
// give loss 0 and gradient exactly 0; their lse is computed all the same.
// logits [seq_len, vocab_size]; labels [seq_len]; losses, logsumexp [seq_len].
// One workgroup a row. Forward reads it once and sets losses and logsumexp; sums are carried in
// runs of RUN batches of BATCH Vecs, so their error does not grow with the vocabulary. A row with a
// logit that is not finite gets a loss that is not finite. Equal to cpu::cross_entropy_forward and
// cpu::cross_entropy_backward.
// Prelude: lib_vector1 or lib_vector4, lib_row_reduce_core or lib_row_reduce_subgroups (WIDTH 256).

struct ForwardParams {
  seq_len: u32,
  vocab_size: u32,
  loss_start: u32,
  loss_end: u32,
}

const LOWEST: f32 = -3.4e38;  // below every finite value, in place of -infinity
const FLOOR: f32 = -87.0;     // exp() of less is 0 in f32
const BATCH: u32 = 4u;
const RUN: u32 = 16u;

fn is_finite(v: f32) -> bool { return (bitcast<u32>(v) & 0x7f800000u) != 0x7f800000u; }

// exp(before - after), exactly 1 where they are equal.
fn rescale(before: f32, after: f32) -> f32 {
  return select(exp(max(before - after, FLOOR)), 1.0, before == after);
}

@group(0) @binding(0) var<storage, read> logits: array<Vec>;
@group(0) @binding(1) var<storage, read> labels: array<u32>;
@group(0) @binding(2) var<storage, read_write> losses: array<f32>;
@group(0) @binding(3) var<storage, read_write> logsumexp: array<f32>;
@group(0) @binding(4) var<uniform> forward: ForwardParams;

@compute @workgroup_size(256)
fn cross_entropy_forward(@builtin(workgroup_id) group: vec3<u32>,
                         @builtin(num_workgroups) groups: vec3<u32>,
                         @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let length = forward.vocab_size / LANES;
  let n = select(0u, length, row < forward.seq_len);
  let base = row * length;

  var peak = LOWEST;  // of all batches so far
  var total = 0.0;    // sum of exp(logit - peak) over finished runs
  var c = t;
  while (c < n) {
    var run_sum = 0.0;
    for (var b = 0u; b < RUN && c < n; b++) {
      var batch: array<Vec, BATCH>;
      var highest = Vec(LOWEST);
      for (var k = 0u; k < BATCH; k++) {
        let i = c + k * 256u;
        batch[k] = Vec(LOWEST);
        if (i < n) { batch[k] = logits[base + i]; }
        highest = max(highest, batch[k]);
      }
      let next = max(peak, lanes_max(highest));
      let factor = rescale(peak, next);
      var sum = Vec();
      for (var k = 0u; k < BATCH; k++) {
        if (c + k * 256u < n) { sum += exp(max(batch[k] - next, Vec(FLOOR))); }
      }
      total *= factor;
      run_sum = run_sum * factor + lanes_sum(sum);
      peak = next;
      c += BATCH * 256u;
    }
    total += run_sum;
  }
  let row_peak = row_max(peak, t);
  let sum = row_sum(total * rescale(peak, row_peak), t);
  if (t != 0u || row >= forward.seq_len) { return; }

  let log_sum = log(sum);
  logsumexp[row] = row_peak + log_sum;
  let label = labels[row];
  var loss = 0.0;
  if (label < forward.vocab_size && row >= forward.loss_start && row < forward.loss_end) {
    let chosen = lane(logits[base + label / LANES], label % LANES);
    loss = max((row_peak - chosen) + log_sum, 0.0);
    if (!is_finite(row_peak) || !is_finite(sum) || !is_finite(chosen)) {
      loss = bitcast<f32>(0x7f800000u | min(forward.vocab_size, 1u));
    }
  }
  losses[row] = loss;
}

override LOGIT_CAP: f32 = 0.0;

struct BackwardParams {
  seq_len: u32,
  vocab_size: u32,
  loss_start: u32,
  loss_end: u32,
  scale: f32,
}

@group(0) @binding(0) var<storage, read_write> gradient: array<Vec>;
@group(0) @binding(2) var<storage, read> logsumexp_in: array<f32>;
@group(0) @binding(3) var<uniform> backward: BackwardParams;

@compute @workgroup_size(256)
fn cross_entropy_backward(@builtin(workgroup_id) group: vec3<u32>,
                          @builtin(num_workgroups) groups: vec3<u32>,
                          @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  if (row >= backward.seq_len) { return; }
  let n = backward.vocab_size / LANES;
  let base = row * n;
  let label = labels[row];
  if (label >= backward.vocab_size || row < backward.loss_start || row >= backward.loss_end) {
    for (var c = t; c < n; c += 256u) { gradient[base + c] = Vec(0.0); }
    return;
  }
  let lse = logsumexp_in[row];
  for (var c = t; c < n; c += 256u) {
    let logit = gradient[base + c];
    var p = min(exp(max(logit - lse, Vec(FLOOR))), Vec(1.0));
    if (c == label / LANES) { p -= one_hot(label % LANES); }
    var grad = p * backward.scale;
    if (LOGIT_CAP > 0.0) {
      let t = logit / LOGIT_CAP;
      grad *= (Vec(1.0) - t) * (Vec(1.0) + t);
    }
    gradient[base + c] = grad;
  }
}
