// f16 operands for attention's matrix kernels. A tensor is multiplied by a power of two that brings
// the largest 2-norm of its heads into [2^14, 2^15): then no element leaves f16's range and no
// product of two heads exceeds 2^30.
//   attention_norms   parts[g] = the largest norm among every group_count-th 16 cells
//   attention_factor  factors[slot] = (power, 1 / power) from `splits` parts
//   attention_pack    packed[cell * PACKED_UNITS + unit] = 8 elements times the power; zero past HEAD_DIM
// elements [cells, HEAD_DIM]; params.groups counts cells, params.first_token is the slot, params.origin the
// first cell of `packed` that is written. Sets its output.

@group(0) @binding(0) var<storage, read> elements: array<Cell>;
@group(0) @binding(1) var<storage, read_write> parts: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@group(0) @binding(0) var<storage, read> all_parts: array<f32>;
@group(0) @binding(1) var<storage, read_write> factors: array<vec2<f32>>;

@group(0) @binding(1) var<storage, read> factor_of: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> packed: array<vec4<u32>>;
@group(0) @binding(3) var<uniform> pack_params: Params;

var<workgroup> lanes: array<f32, 256>;

@compute @workgroup_size(256)
fn attention_norms(@builtin(workgroup_id) group_id: vec3<u32>,
                   @builtin(num_workgroups) group_count: vec3<u32>,
                   @builtin(local_invocation_index) t: u32) {
  var largest = 0.0;
  for (var first = group_id.x * 16u; first < params.groups; first += group_count.x * 16u) {
    let at = min(first + t / 16u, params.groups - 1u);
    // Relative to the largest element, so that no square leaves f32's range.
    var top = 0.0;
    for (var unit = t % 16u; unit < UNITS; unit += 16u) {
      let v = abs(load_elements(at, unit));
      top = max(top, max(max(v.x, v.y), max(v.z, v.w)));
    }
    lanes[t] = top;
    workgroupBarrier();
    let row = t / 16u * 16u;
    for (var lane = 0u; lane < 16u * params.one; lane++) { top = max(top, lanes[row + lane]); }
    let inverse = select(0.0, 1.0 / top, top > 1e-37);
    var sum = 0.0;
    for (var unit = t % 16u; unit < UNITS; unit += 16u) {
      let v = load_elements(at, unit) * inverse;
      sum += dot(v, v);
    }
    workgroupBarrier();
    lanes[t] = sum;
    workgroupBarrier();
    if (t % 16u == 0u) {
      var total = 0.0;
      for (var lane = 0u; lane < 16u * params.one; lane++) { total += lanes[row + lane]; }
      largest = max(largest, max(top * sqrt(total), top));
    }
    workgroupBarrier();
  }
  lanes[t] = largest;
  workgroupBarrier();
  if (t == 0u) {
    for (var row = 0u; row < 256u * params.one; row += 16u) { largest = max(largest, lanes[row]); }
    parts[group_id.x] = largest;
  }
}

@compute @workgroup_size(256)
fn attention_factor(@builtin(local_invocation_index) t: u32) {
  var largest = 0.0;
  for (var i = t; i < params.splits; i += 256u) { largest = max(largest, all_parts[i]); }
  lanes[t] = largest;
  workgroupBarrier();
  if (t == 0u) {
    for (var i = 0u; i < 256u * params.one; i++) { largest = max(largest, lanes[i]); }
    // 2^(14 - e) for a norm in [2^e, 2^(e + 1)), kept where its inverse is a normal number too.
    let exponent = clamp(bitcast<u32>(largest) >> 23u, 15u, 254u);
    let power = select(268u - exponent, 127u, largest == 0.0);
    factors[params.first_token] =
        vec2<f32>(bitcast<f32>(power << 23u), bitcast<f32>((254u - power) << 23u));
  }
}

@compute @workgroup_size(256)
fn attention_pack(@builtin(workgroup_id) group_id: vec3<u32>,
                  @builtin(num_workgroups) group_count: vec3<u32>,
                  @builtin(local_invocation_index) t: u32) {
  let i = (group_id.x + group_id.y * group_count.x) * 256u + t;
  if (i >= pack_params.groups * PACKED_UNITS) { return; }
  let at = i / PACKED_UNITS;
  let unit = i % PACKED_UNITS * 2u;
  let power = factor_of[pack_params.first_token].x;
  var a = vec4<f32>();
  var b = vec4<f32>();
  if (unit < UNITS) { a = load_elements(at, unit) * power; }
  if (unit + 1u < UNITS) { b = load_elements(at, unit + 1u) * power; }
  packed[pack_params.origin * PACKED_UNITS + i] =
      vec4<u32>(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
}
