// The largest element of a tensor and where it first stands, in parts: a workgroup writes that of
// its n_per_group elements as {bits of the value, index, 1 where an element is not finite, 0}.
// Elements that are not finite are passed over; the index is NONE where no other is left. Equal to cpu::largest.

struct Params {
  n: u32,
  n_per_group: u32,
  first_group: u32,
  first_index: u32,  // of x in the whole tensor
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> parts: array<vec4<u32>>;
@group(0) @binding(2) var<uniform> params: Params;

const WIDTH: u32 = 256u;
const NONE: u32 = 0xffffffffu;
const LOWEST: f32 = -3.4028234663852886e38;

var<workgroup> values: array<f32, WIDTH>;
var<workgroup> indices: array<u32, WIDTH>;
var<workgroup> strange: array<u32, WIDTH>;

@compute @workgroup_size(256)
fn largest(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  let end = min(params.n, (group.x + 1u) * params.n_per_group);
  var value = LOWEST;
  var index = params.n;
  var not_finite = 0u;
  for (var i = group.x * params.n_per_group + t; i < end; i += WIDTH) {
    let v = x[i];
    if ((bitcast<u32>(v) & 0x7f800000u) == 0x7f800000u) {
      not_finite = 1u;
    } else if (v > value || index == params.n) {
      value = v;
      index = i;
    }
  }
  values[t] = value;
  indices[t] = index;
  strange[t] = not_finite;
  for (var half = WIDTH / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (t < half) {
      let v = values[t + half];
      let i = indices[t + half];
      if (v > values[t] || (v == values[t] && i < indices[t])) {
        values[t] = v;
        indices[t] = i;
      }
      strange[t] |= strange[t + half];
    }
  }
  if (t == 0u) {
    let none = indices[0] == params.n;
    parts[params.first_group + group.x] =
        vec4<u32>(bitcast<u32>(values[0]), select(indices[0] + params.first_index, NONE, none),
                  strange[0], 0u);
  }
}
