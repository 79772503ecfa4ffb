// Between f32 and f16 that is stored two to a word:
//   narrow   h = x * factor, row-major
//   widen    x = h * factor, row-major
//   unblock  x[rows, columns] = h * factor, h in 16x16 blocks (ops/f16_blocks.h)
//   rescale  h = h * factor in place
// `factor` is a power of two. An invocation converts 8 halves (one vec4<u32>), or in `unblock` as
// many as are left of the row.

struct Params {
  units: u32,    // of 8 halves
  factor: f32,
  rows: u32,
  columns: u32,
  column_blocks: u32,
  row_begin: u32,  // of the blocks, the first row that is wanted
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> h_out: array<vec4<u32>>;

@group(0) @binding(0) var<storage, read> h: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> x_out: array<f32>;

@group(0) @binding(0) var<storage, read_write> h_both: array<vec4<u32>>;

@group(0) @binding(2) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> q: Params;

fn widened(u: vec4<u32>) -> array<f32, 8> {
  let a = unpack2x16float(u.x);
  let b = unpack2x16float(u.y);
  let c = unpack2x16float(u.z);
  let d = unpack2x16float(u.w);
  return array<f32, 8>(a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y);
}

fn narrowed(v: array<f32, 8>, factor: f32) -> vec4<u32> {
  return vec4<u32>(pack2x16float(vec2<f32>(v[0], v[1]) * factor),
                   pack2x16float(vec2<f32>(v[2], v[3]) * factor),
                   pack2x16float(vec2<f32>(v[4], v[5]) * factor),
                   pack2x16float(vec2<f32>(v[6], v[7]) * factor));
}

@compute @workgroup_size(256)
fn narrow(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
          @builtin(local_invocation_index) t: u32) {
  let i = (wg.x + wg.y * grid.x) * 256u + t;
  if (i >= p.units) {
    return;
  }
  var v: array<f32, 8>;
  for (var j = 0u; j < 8u; j++) {
    v[j] = x[i * 8u + j];
  }
  h_out[i] = narrowed(v, p.factor);
}

@compute @workgroup_size(256)
fn widen(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
         @builtin(local_invocation_index) t: u32) {
  let i = (wg.x + wg.y * grid.x) * 256u + t;
  if (i >= p.units) {
    return;
  }
  let v = widened(h[i]);
  for (var j = 0u; j < 8u; j++) {
    x_out[i * 8u + j] = v[j] * p.factor;
  }
}

@compute @workgroup_size(256)
fn unblock(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
           @builtin(local_invocation_index) t: u32) {
  let i = (wg.x + wg.y * grid.x) * 256u + t;
  if (i >= p.units) {
    return;
  }
  let units_per_row = p.column_blocks * 2u;
  let out_row = i / units_per_row;
  let unit = i % units_per_row;
  let row = p.row_begin + out_row;
  let r = row % 16u;
  let block = (row / 32u * p.column_blocks + unit / 2u) * 2u + row / 16u % 2u;
  let v = widened(h[block * 32u + ((unit & 1u) | (((r >> 1u) & 3u) << 1u) | ((r & 1u) << 3u) |
                                   ((r >> 3u) << 4u))]);
  for (var j = 0u; j < 8u; j++) {
    if (unit * 8u + j < p.columns) {
      x_out[out_row * p.columns + unit * 8u + j] = v[j] * p.factor;
    }
  }
}

@compute @workgroup_size(256)
fn rescale(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
           @builtin(local_invocation_index) t: u32) {
  let i = (wg.x + wg.y * grid.x) * 256u + t;
  if (i < q.units) {
    h_both[i] = narrowed(widened(h_both[i]), q.factor);
  }
}
