// The 16 values of bitsandbytes' NF4 code times the block's scale.
// packed: 8 codes a word, the low nibble of a byte is the even element;
// scales [ceil(n / block_size)]; out [n]. One element an invocation, element = x + y * 65535 * 256;
// sets out.

struct Params {
  n: u32,
  block_size: u32,
}

@group(0) @binding(0) var<storage, read> packed: array<u32>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

const TABLE = array<f32, 16>(
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0);

@compute @workgroup_size(256)
fn nf4_dequant(@builtin(workgroup_id) group: vec3<u32>,
               @builtin(num_workgroups) groups: vec3<u32>,
               @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i >= params.n) { return; }
  let code = (packed[i / 8u] >> (4u * (i % 8u))) & 15u;
  out[i] = TABLE[code] * scales[i / params.block_size];
}
