// Cross-entropy of each position: lse = logsumexp(logits[p, :]); loss = lse - logits[p, label].
// logits [seq_len, vocab_size]; labels (u32), losses, logsumexp [seq_len]. A position outside
// [loss_start, loss_end) or with a label outside the vocabulary has loss 0; its lse is set all the
// same. A workgroup a position, position = x + y * 65535; sets losses and logsumexp. The row is
// read once; terms are added in runs and a tree, so that the error does not grow with the
// vocabulary.

struct Params {
  seq_len: u32,
  vocab_size: u32,
  loss_start: u32,
  loss_end: u32,
}

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> labels: array<u32>;
@group(0) @binding(2) var<storage, read_write> losses: array<f32>;
@group(0) @binding(3) var<storage, read_write> logsumexp: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

const LOWEST: f32 = -3.4e38;  // below every finite value, in place of -infinity
const FLOOR: f32 = -87.0;     // exp() of less is 0 in f32
const RUN: u32 = 32u;         // terms added before they join the total
var<workgroup> slots: array<f32, 256>;

// exp(before - after), exactly 1 where they are equal.
fn rescale(before: f32, after: f32) -> f32 {
  return select(exp(max(before - after, FLOOR)), 1.0, before == after);
}

@compute @workgroup_size(256)
fn cross_entropy_forward(@builtin(workgroup_id) group: vec3<u32>,
                         @builtin(num_workgroups) groups: vec3<u32>,
                         @builtin(local_invocation_index) t: u32) {
  let p = group.x + group.y * groups.x;
  let n = select(0u, params.vocab_size, p < params.seq_len);
  let base = p * params.vocab_size;
  var peak = LOWEST;
  var total = 0.0;  // sum of exp(logit - peak) over finished runs
  var v = t;
  while (v < n) {
    var run = 0.0;
    for (var k = 0u; k < RUN && v < n; k++) {
      let logit = logits[base + v];
      let next = max(peak, logit);
      let factor = rescale(peak, next);
      total *= factor;
      run = run * factor + rescale(logit, next);
      peak = next;
      v += 256u;
    }
    total += run;
  }

  slots[t] = peak;
  for (var step = 128u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (t < step) { slots[t] = max(slots[t], slots[t + step]); }
  }
  workgroupBarrier();
  let row_peak = slots[0];
  workgroupBarrier();
  slots[t] = total * rescale(peak, row_peak);
  for (var step = 128u; step > 0u; step /= 2u) {
    workgroupBarrier();
    if (t < step) { slots[t] += slots[t + step]; }
  }
  workgroupBarrier();
  if (t != 0u || n == 0u) { return; }

  let log_sum = log(slots[0]);
  logsumexp[p] = row_peak + log_sum;
  let label = labels[p];
  var loss = 0.0;
  if (label < n && p >= params.loss_start && p < params.loss_end) {
    loss = max((row_peak - logits[base + label]) + log_sum, 0.0);
  }
  losses[p] = loss;
}
