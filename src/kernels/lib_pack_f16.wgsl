// What the kernels that make f16 blocks (ops/f16_blocks.h) of X[rows, columns] share. The prelude
// declares binding 0 and load4(row, quad): elements 4 quad .. 4 quad + 3, zero past the last column.

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
@group(0) @binding(3) var<uniform> p: Params;

// The rows of a block in the order in which their units lie.
fn row_at(slot: u32) -> u32 {
  return ((slot & 3u) << 1u) | ((slot >> 2u) & 1u) | (slot & 8u);
}

// Writes 8 columns, the unit-th of a row whose place in its block of 16 rows is `slot`.
fn store_unit(row_block: u32, slot: u32, unit: u32, a: vec4<f32>, b: vec4<f32>) {
  let block = (row_block / 2u * p.column_blocks + unit / 2u) * 2u + row_block % 2u;
  y[p.y_offset + block * 32u + slot * 2u + unit % 2u] =
      vec4<u32>(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
}
