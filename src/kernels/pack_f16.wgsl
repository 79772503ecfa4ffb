// X[rows, columns] in f32 becomes f16 in 16x16 blocks (ops/f16_blocks.h), multiplied by exact powers
// of two so that no value leaves f16's range, padded with zeros to multiples of 32:
//   pack_rows    by one power for each row, which brings the row's largest magnitude into
//                [2^14, 2^15); its inverse goes to scales[row]
//   pack_scaled  all by scales[1]
//
// The prelude declares binding 0 and load4(row, quad): elements 4 quad .. 4 quad + 3, zero past the
// last column.
// x       f32 [rows, columns], rows ld apart
// y       f16 blocks, 8 halves a vec4<u32>; set
// scales  f32 [rows] set by pack_rows; f32 [2] read by pack_scaled
// A workgroup packs 16 rows, 16 invocations a row. Equal to rounding x * power to f16.

struct Params {
  rows: u32,
  columns: u32,
  ld: u32,
  x_offset: u32,
  y_offset: u32,       // in units of 8 halves
  scales_offset: u32,
  column_blocks: u32,  // of 16, padded to an even number
  row_blocks: u32,     // of 16, padded to an even number
}

@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> scales: array<f32>;
@group(0) @binding(2) var<storage, read> given: array<f32>;
@group(0) @binding(3) var<uniform> p: Params;

var<workgroup> largest: array<u32, 256>;

fn halves(a: vec4<f32>, b: vec4<f32>) -> vec4<u32> {
  return vec4<u32>(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy),
                   pack2x16float(b.zw));
}

// Number of 16-byte units before the one that holds 8 columns of a row.
fn unit_index(row_block: u32, r: u32, unit: u32) -> u32 {
  let block = (row_block / 2u * p.column_blocks + unit / 2u) * 2u + row_block % 2u;
  return p.y_offset + block * 32u +
         ((unit & 1u) | (((r >> 1u) & 3u) << 1u) | ((r & 1u) << 3u) | ((r >> 3u) << 4u));
}

fn pack_row(row_block: u32, t: u32, scale: f32) {
  let r = t / 16u;
  let row = row_block * 16u + r;
  for (var unit = t % 16u; unit < p.column_blocks * 2u; unit += 16u) {
    var a = vec4<f32>();
    var b = vec4<f32>();
    if (row < p.rows) {
      a = load4(row, unit * 2u) * scale;
      b = load4(row, unit * 2u + 1u) * scale;
    }
    y[unit_index(row_block, r, unit)] = halves(a, b);
  }
}

@compute @workgroup_size(256)
fn pack_rows(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
             @builtin(local_invocation_index) t: u32) {
  let row_block = wg.x + wg.y * grid.x;
  if (row_block >= p.row_blocks) {
    return;
  }
  let row = row_block * 16u + t / 16u;
  var bits = vec4<u32>();
  if (row < p.rows) {
    for (var quad = t % 16u; quad * 4u < p.columns; quad += 16u) {
      bits = max(bits, bitcast<vec4<u32>>(load4(row, quad)) & vec4<u32>(0x7fffffffu));
    }
  }
  largest[t] = max(max(bits.x, bits.y), max(bits.z, bits.w));
  workgroupBarrier();
  var row_largest = 0u;
  for (var i = 0u; i < 16u; i++) {
    row_largest = max(row_largest, largest[t / 16u * 16u + i]);
  }
  // The power is 2^(14 - exponent), kept within f32's normal numbers; rows of zeros take 2^0.
  let exponent = select(clamp(row_largest >> 23u, 15u, 255u), 141u, row_largest == 0u);
  if (row < p.rows && t % 16u == 0u) {
    scales[p.scales_offset + row] = bitcast<f32>((exponent - 14u) << 23u);
  }
  pack_row(row_block, t, bitcast<f32>((268u - exponent) << 23u));
}

@compute @workgroup_size(256)
fn pack_scaled(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
               @builtin(local_invocation_index) t: u32) {
  let row_block = wg.x + wg.y * grid.x;
  if (row_block < p.row_blocks) {
    pack_row(row_block, t, given[p.scales_offset + 1u]);
  }
}
