// X[rows, columns] in f32 becomes f16 blocks, each row multiplied by the power of two that brings
// its largest magnitude into [2^14, 2^15); the power's inverse goes to scales[row]. Padded with
// zeros to multiples of 32. Equal to rounding x * power to f16.
//
// Follows lib_pack_f16.wgsl and a generated prelude: LANES = SIDE * SIDE invocations hold a row in
// registers between the search for its largest element and the store, each the units lane,
// lane + LANES, ... (Held, load_held, largest_held, store_held).
// x       f32 [rows, columns], rows ld apart
// y       f16 blocks; set
// scales  f32 [rows]; set

@group(0) @binding(2) var<storage, read_write> scales: array<f32>;

var<workgroup> lane_largest: array<u32, 256>;
var<workgroup> side_largest: array<u32, 256>;

@compute @workgroup_size(256)
fn pack_rows(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
             @builtin(local_invocation_index) t: u32) {
  let first = (wg.x + wg.y * grid.x) * (256u / LANES);
  if (first >= p.row_blocks * 16u) {
    return;
  }
  let row_block = first / 16u;
  let slot = first % 16u + t / LANES;
  let row = row_block * 16u + row_at(slot);
  let lane = t % LANES;
  var held = Held();
  if (row < p.rows) {
    held = load_held(row, lane);
  }
  lane_largest[t] = largest_held(held);
  workgroupBarrier();
  let begin = t - lane;
  if (lane < SIDE) {
    var largest = 0u;
    for (var i = 0u; i < SIDE; i++) {
      largest = max(largest, lane_largest[begin + i * SIDE + lane]);
    }
    side_largest[t] = largest;
  }
  workgroupBarrier();
  var largest = 0u;
  for (var i = 0u; i < SIDE; i++) {
    largest = max(largest, side_largest[begin + i]);
  }
  let inverse = inverse_power(largest);
  if (row < p.rows && lane == 0u) {
    scales[p.scales_offset + row] = inverse;
  }
  store_held(held, row_block, slot, lane, inverse_of_power(inverse));
}
