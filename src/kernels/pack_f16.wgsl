// X[rows, columns] in f32 becomes f16 blocks, multiplied by exact powers of two, padded with zeros
// to multiples of 32. For rows too long for pack_rows.wgsl, in two dispatches:
//   row_powers   scales[row] = the inverse of the power that brings the row's largest magnitude
//                into [2^14, 2^15)
//   pack_powers  y = x by the row's power
// and with one power for all:
//   pack_scaled  y = x by given[1]
//
// Follows lib_pack_f16.wgsl.
// x              f32 [rows, columns], rows ld apart
// y              f16 blocks; set
// scales, given  f32 [rows]; f32 [2]
// row_powers: a workgroup a row. The others: a workgroup packs 16 rows by 512 columns, an
// invocation two quads. Equal to rounding x * power to f16.

@group(0) @binding(2) var<storage, read_write> scales: array<f32>;
@group(0) @binding(2) var<storage, read> given: array<f32>;

var<workgroup> lane_largest: array<u32, 256>;

@compute @workgroup_size(256)
fn row_powers(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
              @builtin(local_invocation_index) t: u32) {
  let row = wg.x + wg.y * grid.x;
  if (row >= p.rows) {
    return;
  }
  var bits = vec4<u32>();
  for (var quad = t; quad * 4u < p.columns; quad += 1024u) {
    let a = load4(row, quad);
    let b = load4(row, quad + 256u);
    let c = load4(row, quad + 512u);
    let d = load4(row, quad + 768u);
    bits = max(bits, max(max(magnitude_bits(a), magnitude_bits(b)),
                         max(magnitude_bits(c), magnitude_bits(d))));
  }
  lane_largest[t] = max(max(bits.x, bits.y), max(bits.z, bits.w));
  workgroupBarrier();
  if (t < 16u) {
    var largest = 0u;
    for (var i = 0u; i < 16u; i++) {
      largest = max(largest, lane_largest[i * 16u + t]);
    }
    lane_largest[t] = largest;
  }
  workgroupBarrier();
  if (t == 0u) {
    var largest = 0u;
    for (var i = 0u; i < 16u; i++) {
      largest = max(largest, lane_largest[i]);
    }
    scales[p.scales_offset + row] = inverse_power(largest);
  }
}

fn pack_block(group: u32, t: u32, per_row: bool) {
  let column_groups = (p.column_blocks + 31u) / 32u;
  let row_block = group / column_groups;
  if (row_block >= p.row_blocks) {
    return;
  }
  let slot = t / 2u % 16u;
  let row = row_block * 16u + row_at(slot);
  var power = 0.0;
  if (!per_row) {
    power = given[p.scales_offset + 1u];
  } else if (row < p.rows) {
    power = inverse_of_power(given[p.scales_offset + row]);
  }
  for (var i = 0u; i < 4u; i++) {
    let block = group % column_groups * 32u + i * 8u + t / 32u;
    let unit = block * 2u + t % 2u;
    var a = vec4<f32>();
    var b = vec4<f32>();
    if (row < p.rows) {
      a = load4(row, unit * 2u) * power;
      b = load4(row, unit * 2u + 1u) * power;
    }
    if (block < p.column_blocks) {
      store_unit(row_block, slot, unit, a, b);
    }
  }
}

@compute @workgroup_size(256)
fn pack_powers(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
               @builtin(local_invocation_index) t: u32) {
  pack_block(wg.x + wg.y * grid.x, t, true);
}

@compute @workgroup_size(256)
fn pack_scaled(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
               @builtin(local_invocation_index) t: u32) {
  pack_block(wg.x + wg.y * grid.x, t, false);
}
