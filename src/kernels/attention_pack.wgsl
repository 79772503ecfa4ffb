// f16 operands for attention's matrix kernels. A tensor is multiplied by the power of two that brings
// sqrt(HEAD_DIM) times its largest element, which no head's 2-norm exceeds, into [2^14, 2^15): then no
// element leaves f16's range and no product of two heads exceeds 2^30.
//   attention_largest  parts[tensor * group_count.x + g] = the largest element among the g-th share
//   attention_pack     factors[slot] = (power, 1 / power); to_TENSOR[cell * PACKED_UNITS + unit] = 8
//                      elements times the power, zero past HEAD_DIM
// One dispatch takes up to three tensors [cells, HEAD_DIM]: group_id.y is the tensor, group_id.x one of
// at most 1024 workgroups that share it, as many in both kernels. The generated prelude binds the
// tensors and gives CELL_PARTS (Cells a head), PACKED_UNITS, element(tensor, i), load(tensor, cell, unit)
// and store(tensor, i, halves). Sets its output.

struct Params {
  cells0: u32,
  cells1: u32,
  cells2: u32,
  first_slot: u32,
  one: u32,  // 1: a factor of loop bounds that compilers then do not unroll
}

const NORM_OF_ONES: f32 = sqrt(f32(HEAD_DIM));

var<workgroup> lanes: array<f32, 256>;

fn cells_of(p: Params, tensor: u32) -> u32 {
  return select(select(p.cells2, p.cells1, tensor == 1u), p.cells0, tensor == 0u);
}

fn highest_of(v: vec4<f32>) -> f32 { return max(max(v.x, v.y), max(v.z, v.w)); }

// The largest of all lanes' numbers, for every lane.
fn workgroup_largest(t: u32, mine: f32, one: u32) -> f32 {
  lanes[t] = mine;
  for (var half = 128u * one; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (t < half) { lanes[t] = max(lanes[t], lanes[t + half]); }
  }
  workgroupBarrier();
  return lanes[0];
}

@compute @workgroup_size(256)
fn attention_largest(@builtin(workgroup_id) group_id: vec3<u32>,
                     @builtin(num_workgroups) group_count: vec3<u32>,
                     @builtin(local_invocation_index) t: u32) {
  let tensor = group_id.y;
  let count = cells_of(largest_params, tensor) * CELL_PARTS;
  let step = group_count.x * 256u;
  var largest = vec4<f32>();
  for (var i = group_id.x * 256u + t; i < count; i += step) {
    largest = max(largest, abs(vec4<f32>(element(tensor, i))));
  }
  let highest = workgroup_largest(t, highest_of(largest), largest_params.one);
  if (t == 0u) { parts[tensor * group_count.x + group_id.x] = highest; }
}

@compute @workgroup_size(256)
fn attention_pack(@builtin(workgroup_id) group_id: vec3<u32>,
                  @builtin(num_workgroups) group_count: vec3<u32>,
                  @builtin(local_invocation_index) t: u32) {
  let tensor = group_id.y;
  var largest = 0.0;
  for (var i = t; i < group_count.x; i += 256u) {
    largest = max(largest, all_parts[tensor * group_count.x + i]);
  }
  let bound = workgroup_largest(t, largest, pack_params.one) * NORM_OF_ONES;
  // 2^(14 - e) for a bound in [2^e, 2^(e + 1)), kept where its inverse is a normal number too.
  let exponent = clamp(bitcast<u32>(bound) >> 23u, 15u, 254u);
  let power_bits = select(268u - exponent, 127u, bound == 0.0);
  let power = bitcast<f32>(power_bits << 23u);
  if (t == 0u && group_id.x == 0u) {
    factors[pack_params.first_slot + tensor] =
        vec2<f32>(power, bitcast<f32>((254u - power_bits) << 23u));
  }
  let count = cells_of(pack_params, tensor) * PACKED_UNITS;
  let step = group_count.x * 256u;
  for (var i = group_id.x * 256u + t; i < count; i += step) {
    let at = i / PACKED_UNITS;
    let unit = i % PACKED_UNITS * 2u;
    var a = vec4<f32>();
    var b = vec4<f32>();
    if (unit < UNITS) { a = load(tensor, at, unit) * power; }
    if (unit + 1u < UNITS) { b = load(tensor, at, unit + 1u) * power; }
    store(tensor, i,
          vec4<u32>(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw)));
  }
}
