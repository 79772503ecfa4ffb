// Rows of a table by index, and the gradient. ids u32; h counts Vecs of a row unless said.
// A dispatch sees the table's rows [row_begin, row_end) alone and leaves the others' positions be.
//   embedding_forward_f32:  out[i] = table[ids[i]]           table [rows, h]
//   embedding_forward_f16:  the same of f16 words [rows, elements], times scale, per element
//   embedding_forward_f16_blocks: of 16x16 blocks (the layout of ops/f16_blocks.h), times scale
//   scatter_rows:           out[ids[i]] = rows[i]
// One invocation a Vec (f16: an element) of a position's row; they set. Equal to
// cpu::embedding_forward.
//   embedding_backward: grad_table[id] += sum of grad_out over the positions of that id
// The host lists them: groups[unique] (from `unique_at`) are distinct ids, positions of group u are
// groups[positions_at + k] for k in [groups[offsets_at + u], groups[offsets_at + u + 1]). One
// workgroup a distinct id; positions are added in order, as cpu::embedding_backward does.
// Prelude: lib_vector1 or lib_vector4.

struct Params {
  count: u32,  // positions
  h: u32,
  row_begin: u32,
  row_end: u32,
  scale: f32,
  padded_h: u32,  // f16 blocks: columns with padding
}

fn element(group: vec3<u32>, groups: vec3<u32>, t: u32) -> u32 {
  return (group.x + group.y * groups.x) * 256u + t;
}

@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<Vec>;
@group(0) @binding(2) var<storage, read_write> out: array<Vec>;
@group(0) @binding(3) var<uniform> params: Params;

@compute @workgroup_size(256)
fn embedding_forward_f32(@builtin(workgroup_id) group: vec3<u32>,
                         @builtin(num_workgroups) groups: vec3<u32>,
                         @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  let position = i / params.h;
  if (position >= params.count) { return; }
  let id = ids[position];
  if (id < params.row_begin || id >= params.row_end) { return; }
  out[i] = table[(id - params.row_begin) * params.h + (i - position * params.h)];
}

@compute @workgroup_size(256)
fn scatter_rows(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(num_workgroups) groups: vec3<u32>,
                @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  let position = i / params.h;
  if (position >= params.count) { return; }
  let id = ids[position];
  if (id < params.row_begin || id >= params.row_end) { return; }
  out[(id - params.row_begin) * params.h + (i - position * params.h)] = table[i];
}

@group(0) @binding(1) var<storage, read> halves: array<u32>;
@group(0) @binding(2) var<storage, read_write> out_elements: array<f32>;

// Exact for every finite f16, subnormal ones included.
fn half_value(index: u32) -> f32 {
  let bits = (halves[index / 2u] >> (16u * (index & 1u))) & 0xffffu;
  let exponent = (bits >> 10u) & 31u;
  let mantissa = bits & 1023u;
  var magnitude = f32(mantissa) * 0x1p-24;
  if (exponent > 0u) { magnitude = bitcast<f32>(((exponent + 112u) << 23u) | (mantissa << 13u)); }
  return select(magnitude, -magnitude, bits >= 0x8000u);
}

@compute @workgroup_size(256)
fn embedding_forward_f16(@builtin(workgroup_id) group: vec3<u32>,
                         @builtin(num_workgroups) groups: vec3<u32>,
                         @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  let position = i / params.h;
  if (position >= params.count) { return; }
  let id = ids[position];
  if (id < params.row_begin || id >= params.row_end) { return; }
  let column = i - position * params.h;
  out_elements[i] = half_value((id - params.row_begin) * params.h + column) * params.scale;
}

@compute @workgroup_size(256)
fn embedding_forward_f16_blocks(@builtin(workgroup_id) group: vec3<u32>,
                                @builtin(num_workgroups) groups: vec3<u32>,
                                @builtin(local_invocation_index) t: u32) {
  let i = element(group, groups, t);
  let position = i / params.h;
  if (position >= params.count) { return; }
  let id = ids[position];
  if (id < params.row_begin || id >= params.row_end) { return; }
  let column = i - position * params.h;
  let row = id - params.row_begin;  // row_begin is a multiple of 32
  let r = row % 16u;
  let unit = ((column / 8u) & 1u) | (((r >> 1u) & 3u) << 1u) | ((r & 1u) << 3u) | ((r >> 3u) << 4u);
  let block = ((row / 32u) * (params.padded_h / 16u) + column / 16u) * 2u + ((row / 16u) & 1u);
  out_elements[i] = half_value(block * 256u + unit * 8u + (column & 7u)) * params.scale;
}

struct BackwardParams {
  first_group: u32,
  groups: u32,
  h: u32,
  row_begin: u32,
  offsets_at: u32,
  positions_at: u32,
}

@group(0) @binding(0) var<storage, read> lists: array<u32>;
@group(0) @binding(1) var<storage, read> grad_out: array<Vec>;
@group(0) @binding(2) var<storage, read_write> grad_table: array<Vec>;
@group(0) @binding(3) var<uniform> backward: BackwardParams;

@compute @workgroup_size(256)
fn embedding_backward(@builtin(workgroup_id) group: vec3<u32>,
                      @builtin(num_workgroups) groups: vec3<u32>,
                      @builtin(local_invocation_index) t: u32) {
  let index = group.x + group.y * groups.x;
  if (index >= backward.groups) { return; }
  let u = backward.first_group + index;
  let row = (lists[u] - backward.row_begin) * backward.h;
  let begin = backward.positions_at + lists[backward.offsets_at + u];
  let end = backward.positions_at + lists[backward.offsets_at + u + 1u];
  for (var c = t; c < backward.h; c += 256u) {
    var sum = grad_table[row + c];
    for (var k = begin; k < end; k++) { sum += grad_out[lists[k] * backward.h + c]; }
    grad_table[row + c] = sum;
  }
}
