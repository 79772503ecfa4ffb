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

// Writes 8 columns, the unit-th of a row whose place in its block of 16 rows is `slot`.
fn store_unit(row_block: u32, slot: u32, unit: u32, a: vec4<f32>, b: vec4<f32>) {
  y[p.y_offset + block_unit(row_block, slot, unit, p.column_blocks)] = to_halves(a, b);
}
