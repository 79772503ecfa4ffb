// Places in f16 blocks (ops/f16_blocks.h), in units of 8 halves.

// The rows of a block in the order in which their units lie.
fn row_at(slot: u32) -> u32 { return ((slot & 3u) << 1u) | ((slot >> 2u) & 1u) | (slot & 8u); }
fn slot_of(row: u32) -> u32 { return ((row >> 1u) & 3u) | ((row & 1u) << 2u) | (row & 8u); }

// The unit-th 8 columns of the row in this slot of a block of 16 rows.
fn block_unit(row_block: u32, slot: u32, unit: u32, column_blocks: u32) -> u32 {
  let block = (row_block / 2u * column_blocks + unit / 2u) * 2u + row_block % 2u;
  return block * 32u + slot * 2u + unit % 2u;
}

fn to_halves(a: vec4<f32>, b: vec4<f32>) -> vec4<u32> {
  return vec4<u32>(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
}
