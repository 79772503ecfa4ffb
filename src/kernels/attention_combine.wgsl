// The second stage of attention_decode.wgsl: out = sum of the parts, each brought to the common
// maximum, over their total. part_sum, part_total as there; out [queries, heads, HEAD_DIM] and
// logsumexp [queries, heads] are set. One workgroup: one head of one query.

@group(0) @binding(0) var<storage, read> part_sum: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> part_total: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<Cell>;
@group(0) @binding(3) var<storage, read_write> logsumexp: array<f32>;
@group(0) @binding(4) var<uniform> params: Params;

@compute @workgroup_size(64)
fn attention_combine(@builtin(workgroup_id) group_id: vec3<u32>,
                     @builtin(num_workgroups) group_count: vec3<u32>,
                     @builtin(local_invocation_index) t: u32) {
  let group = group_id.x + group_id.y * group_count.x;
  if (group >= params.groups) { return; }
  let first = group * params.splits;
  var top = LOWEST;
  for (var s = first; s < first + params.splits; s++) { top = max(top, part_total[s].x); }
  var total = 0.0;
  var sum = vec4<f32>();
  for (var s = first; s < first + params.splits; s++) {
    let part = part_total[s];
    if (part.y > 0.0) {
      let factor = exp2(part.x - top);
      total += part.y * factor;
      if (t < UNITS) { sum += part_sum[s * UNITS + t] * factor; }
    }
  }
  if (t < UNITS) { store_out(group, t, sum * select(0.0, 1.0 / total, total > 0.0)); }
  if (t == 0u) { logsumexp[group] = (top + log2(max(total, 1e-38))) * LN_2; }
}
