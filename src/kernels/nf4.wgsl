// NF4 weights (cpu/nf4.h) become
//   dequantise         f32, row-major
//   dequantise_blocks  f16 in 16x16 blocks (ops/f16_blocks.h), multiplied by `factor`, a power of
//                      two; padded with zeros to multiples of 32
//
// The prelude declares bindings 0 to 2 (codes, absmax_codes, absmax_scales) and nf4_prepare,
// nf4_absmax, nf4_decode8. A unit is the 8 elements of one word of codes.
// x  f32 [count], set; an invocation decodes one unit
// y  f16 blocks, 8 halves a vec4<u32>, set; a workgroup fills 16 rows
// Equal to cpu::dequantise_nf4.

struct Params {
  units: u32,   // dequantise: units touched; dequantise_blocks: units of a row
  count: u32,   // dequantise: elements; dequantise_blocks: rows
  first: u32,   // of the binding's elements (blocks: units) the first that is wanted
  origin: u32,  // units of the weight before the binding
  out_offset: u32,
  column_blocks: u32,
  row_blocks: u32,
  absmax_offset: f32,
  factor: f32,
}

@group(0) @binding(3) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<u32>>;
@group(0) @binding(4) var<uniform> p: Params;

fn decode(unit: u32) -> mat2x4<f32> {
  return nf4_decode8(codes[unit], nf4_absmax((p.origin + unit) / 8u, p.absmax_offset));
}

@compute @workgroup_size(256)
fn dequantise(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
              @builtin(local_invocation_index) t: u32) {
  nf4_prepare(t);
  let i = (wg.x + wg.y * grid.x) * 256u + t;
  if (i >= p.units) {
    return;
  }
  let unit = p.first / 8u + i;
  var v = decode(unit);
  for (var j = 0u; j < 8u; j++) {
    let element = unit * 8u + j;
    if (element >= p.first && element - p.first < p.count) {
      x[p.out_offset + element - p.first] = v[j / 4u][j % 4u];
    }
  }
}

@compute @workgroup_size(256)
fn dequantise_blocks(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
                     @builtin(local_invocation_index) t: u32) {
  nf4_prepare(t);
  let row_block = wg.x + wg.y * grid.x;
  if (row_block >= p.row_blocks) {
    return;
  }
  let r = t / 16u;
  let row = row_block * 16u + r;
  for (var unit = t % 16u; unit < p.column_blocks * 2u; unit += 16u) {
    var halves = vec4<u32>();
    if (row < p.count && unit < p.units) {
      let v = decode(p.first + row * p.units + unit) * p.factor;
      halves = vec4<u32>(pack2x16float(v[0].xy), pack2x16float(v[0].zw), pack2x16float(v[1].xy),
                         pack2x16float(v[1].zw));
    }
    let block = (row_block / 2u * p.column_blocks + unit / 2u) * 2u + row_block % 2u;
    y[block * 32u + ((unit & 1u) | (((r >> 1u) & 3u) << 1u) | ((r & 1u) << 3u) |
                     ((r >> 3u) << 4u))] = halves;
  }
}
