// NF4 weights (cpu/nf4.h) become
//   dequantise         f32, row-major
//   dequantise_blocks  f16 in 16x16 blocks (ops/f16_blocks.h), multiplied by `factor`, a power of
//                      two; padded with zeros to multiples of 32
//
// The prelude declares bindings 0 to 2 (codes, absmax_codes, absmax_scales) and nf4_prepare,
// nf4_absmax, nf4_decode8. A unit is the 8 elements of one word of codes.
// x  f32 [count], set; an invocation decodes one unit
// y  f16 blocks, 8 halves a vec4<u32>, set; a workgroup fills 16 rows of 512 columns
// Equal to cpu::dequantise_nf4.

struct Params {
  units: u32,   // dequantise: units touched; dequantise_blocks: units of a row
  count: u32,   // dequantise: elements; dequantise_blocks: rows
  first: u32,   // of the binding's elements (blocks: units) the first that is wanted
  origin: u32,  // units of the weight before the binding
  out_offset: u32,
  column_blocks: u32,
  column_groups: u32,  // of 32 column blocks
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

fn to_halves(v: mat2x4<f32>) -> vec4<u32> {
  return vec4<u32>(pack2x16float(v[0].xy), pack2x16float(v[0].zw), pack2x16float(v[1].xy),
                   pack2x16float(v[1].zw));
}

// A unit of every row of four blocks side by side for 32 invocations, in the order of the blocks.
@compute @workgroup_size(256)
fn dequantise_blocks(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
                     @builtin(local_invocation_index) t: u32) {
  nf4_prepare(t);
  let id = wg.x + wg.y * grid.x;
  let row_block = id / p.column_groups;
  let column = (id % p.column_groups) * 32u + t / 32u * 4u;
  if (row_block >= p.row_blocks || column >= p.column_blocks) {
    return;
  }
  let slot = t % 32u / 2u;
  let row = row_block * 16u + ((slot & 3u) << 1u) + ((slot >> 2u) & 1u) + (slot & 8u);
  let unit = column * 2u + t % 2u;
  let rows_unit = p.first + row * p.units;
  let last = rows_unit + p.units - 1u;
  var words = vec4<u32>();
  var absmax = vec2<f32>();
  var first_block = 0u;
  if (row < p.count && unit < p.units) {
    for (var j = 0u; j < 4u; j++) {
      words[j] = codes[min(rows_unit + unit + 2u * j, last)];
    }
    // Seven units touch two blocks of absmax at most.
    first_block = (p.origin + rows_unit + unit) / 8u;
    let last_block = (p.origin + min(rows_unit + unit + 6u, last)) / 8u;
    absmax = vec2<f32>(nf4_absmax(first_block, p.absmax_offset));
    if (last_block > first_block) {
      absmax.y = nf4_absmax(last_block, p.absmax_offset);
    }
  }
  let to = (row_block / 2u * p.column_blocks + column) * 64u + row_block % 2u * 32u + t % 32u;
  for (var j = 0u; j < 4u; j++) {
    if (column + j < p.column_blocks) {
      var halves = vec4<u32>();
      if (row < p.count && unit + 2u * j < p.units) {
        let block = (p.origin + rows_unit + unit + 2u * j) / 8u;
        let scale = select(absmax.y, absmax.x, block == first_block);
        halves = to_halves(nf4_decode8(words[j], scale) * p.factor);
      }
      y[to + 64u * j] = halves;
    }
  }
}
