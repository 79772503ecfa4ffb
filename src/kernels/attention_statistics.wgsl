// statistics = (logsumexp * log2(e), delta) with delta = sum over head_dim of out * grad_out: what the
// attention gradients need of each query. out, grad_out [tokens, heads, HEAD_DIM]; logsumexp
// [tokens, heads]. Sets statistics [heads, tokens]. One workgroup: 16 heads of tokens, 16 lanes each.

@group(0) @binding(0) var<storage, read> out: array<Cell>;
@group(0) @binding(1) var<storage, read> grad_out: array<Cell>;
@group(0) @binding(2) var<storage, read> logsumexp: array<f32>;
@group(0) @binding(3) var<storage, read_write> statistics: array<vec2<f32>>;
@group(0) @binding(4) var<uniform> params: Params;

const LOG2_E: f32 = 1.4426950408889634;

var<workgroup> partial: array<f32, 256>;

@compute @workgroup_size(256)
fn attention_statistics(@builtin(workgroup_id) group_id: vec3<u32>,
                        @builtin(num_workgroups) group_count: vec3<u32>,
                        @builtin(local_invocation_index) t: u32) {
  let group = group_id.x + group_id.y * group_count.x;
  if (group >= params.groups) { return; }
  let cells = params.queries * params.heads;
  let at = group * 16u + t / 16u;
  var sum = 0.0;
  if (at < cells) {
    for (var unit = t % 16u; unit < UNITS * params.one; unit += 16u) {
      sum += dot(load_out(at, unit), load_grad_out(at, unit));
    }
  }
  partial[t] = sum;
  workgroupBarrier();
  if (t % 16u == 0u && at < cells) {
    var delta = 0.0;
    for (var lane = 0u; lane < 16u * params.one; lane++) { delta += partial[t + lane]; }
    statistics[at % params.heads * params.queries + at / params.heads] =
        vec2<f32>(logsumexp[at] * LOG2_E, delta);
  }
}
