// The exact power of two that brings the largest magnitude of a tensor into [2^14, 2^15):
//   amax_parts  parts[first + g] = largest bits of |x| over every so many runs of 256 elements as there
//               are workgroups; amax_parts_4: the same by vectors, n and x_offset multiples of 4
//   amax_scale  scales[0] = 1 / power, scales[1] = power, from `count` parts
// Magnitudes are compared as bits, so a value that is not finite counts as the largest.
//
// x       f32 [n]
// parts   u32, set
// scales  f32 [2], set

struct Params {
  n: u32,
  x_offset: u32,
  first: u32,
  count: u32,
}

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> parts: array<u32>;
@group(0) @binding(2) var<uniform> p: Params;

@group(0) @binding(0) var<storage, read> x4: array<vec4<u32>>;
@group(0) @binding(0) var<storage, read> all_parts: array<u32>;
@group(0) @binding(1) var<storage, read_write> scales: array<f32>;

var<workgroup> largest: array<u32, 256>;

fn workgroup_largest(t: u32, own: u32) -> u32 {
  largest[t] = own;
  workgroupBarrier();
  for (var width = 128u; width > 0u; width /= 2u) {
    if (t < width) {
      largest[t] = max(largest[t], largest[t + width]);
    }
    workgroupBarrier();
  }
  return largest[0];
}

@compute @workgroup_size(256)
fn amax_parts(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
              @builtin(local_invocation_index) t: u32) {
  var own = 0u;
  for (var i = wg.x * 256u + t; i < p.n; i += grid.x * 256u) {
    own = max(own, x[p.x_offset + i] & 0x7fffffffu);
  }
  let all = workgroup_largest(t, own);
  if (t == 0u) {
    parts[p.first + wg.x] = all;
  }
}

// Four vectors are on their way at a time; those beyond the end are the last one again.
@compute @workgroup_size(256)
fn amax_parts_4(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
                @builtin(local_invocation_index) t: u32) {
  let first = p.x_offset / 4u;
  let last = p.n / 4u - 1u;
  let stride = grid.x * 256u;
  var own = vec4<u32>();
  for (var i = wg.x * 256u + t; i <= last; i += stride * 4u) {
    let a = x4[first + i];
    let b = x4[first + min(i + stride, last)];
    let c = x4[first + min(i + stride * 2u, last)];
    let d = x4[first + min(i + stride * 3u, last)];
    own = max(own, max(max(a & vec4<u32>(0x7fffffffu), b & vec4<u32>(0x7fffffffu)),
                       max(c & vec4<u32>(0x7fffffffu), d & vec4<u32>(0x7fffffffu))));
  }
  let all = workgroup_largest(t, max(max(own.x, own.y), max(own.z, own.w)));
  if (t == 0u) {
    parts[p.first + wg.x] = all;
  }
}

@compute @workgroup_size(256)
fn amax_scale(@builtin(local_invocation_index) t: u32) {
  var own = 0u;
  for (var i = t; i < p.count; i += 256u) {
    own = max(own, all_parts[i]);
  }
  let all = workgroup_largest(t, own);
  let exponent = select(clamp(all >> 23u, 15u, 255u), 141u, all == 0u);
  if (t == 0u) {
    scales[0] = bitcast<f32>((exponent - 14u) << 23u);
    scales[1] = bitcast<f32>((268u - exponent) << 23u);
  }
}
