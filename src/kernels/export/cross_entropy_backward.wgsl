// Gradient of the cross-entropy in place: logits <- (exp(logit - lse) - [v = label]) scale.
// logits [seq_len, vocab_size]; labels (u32), logsumexp [seq_len]. Exactly 0 for positions outside
// [loss_start, loss_end) and for labels outside the vocabulary. A workgroup a position, position =
// x + y * 65535.

struct Params {
  seq_len: u32,
  vocab_size: u32,
  loss_start: u32,
  loss_end: u32,
  scale: f32,
}

@group(0) @binding(0) var<storage, read_write> logits: array<f32>;
@group(0) @binding(1) var<storage, read> labels: array<u32>;
@group(0) @binding(2) var<storage, read> logsumexp: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

const FLOOR: f32 = -87.0;  // exp() of less is 0 in f32

@compute @workgroup_size(256)
fn cross_entropy_backward(@builtin(workgroup_id) group: vec3<u32>,
                          @builtin(num_workgroups) groups: vec3<u32>,
                          @builtin(local_invocation_index) t: u32) {
  let p = group.x + group.y * groups.x;
  if (p >= params.seq_len) { return; }
  let base = p * params.vocab_size;
  let label = labels[p];
  if (label >= params.vocab_size || p < params.loss_start || p >= params.loss_end) {
    for (var v = t; v < params.vocab_size; v += 256u) { logits[base + v] = 0.0; }
    return;
  }
  let lse = logsumexp[p];
  for (var v = t; v < params.vocab_size; v += 256u) {
    let probability = min(exp(max(logits[base + v] - lse, FLOOR)), 1.0);
    logits[base + v] = (probability - select(0.0, 1.0, v == label)) * params.scale;
  }
}
