// Gradient of C[M,N] = A[M,K] B[K,N] by B: dB = A^T dC.
// A [M, K], dC [M, N], dB [K, N]; a workgroup computes a 64 x 64 tile of dB, an invocation 4 x 4 of
// it; tile = x + y * 65535, row by row; sets dB. Sums over 16 terms join the total at a time.

struct Params {
  M: u32,
  K: u32,
  N: u32,
}

@group(0) @binding(0) var<storage, read> A: array<f32>;
@group(0) @binding(1) var<storage, read> dC: array<f32>;
@group(0) @binding(2) var<storage, read_write> dB: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

const TILE: u32 = 64u;
const DEPTH: u32 = 16u;
var<workgroup> left: array<f32, 1024>;
var<workgroup> right: array<f32, 1024>;

@compute @workgroup_size(256)
fn gemm_backward_b(@builtin(workgroup_id) group: vec3<u32>,
                   @builtin(num_workgroups) groups: vec3<u32>,
                   @builtin(local_invocation_index) t: u32) {
  let tile = group.x + group.y * groups.x;
  let columns = (params.N + TILE - 1u) / TILE;
  let k0 = (tile / columns) * TILE;
  let n0 = (tile % columns) * TILE;
  let row = (t / 16u) * 4u;
  let column = (t % 16u) * 4u;
  var total = array<vec4<f32>, 4>();
  for (var m0 = 0u; m0 < params.M; m0 += DEPTH) {
    for (var i = t; i < TILE * DEPTH; i += 256u) {
      let m = m0 + i / TILE;
      let c = i % TILE;
      var a = 0.0;
      var b = 0.0;
      if (m < params.M && k0 + c < params.K) { a = A[m * params.K + k0 + c]; }
      if (m < params.M && n0 + c < params.N) { b = dC[m * params.N + n0 + c]; }
      left[i] = a;
      right[i] = b;
    }
    workgroupBarrier();
    var sum = array<vec4<f32>, 4>();
    for (var m = 0u; m < DEPTH; m++) {
      let at = m * TILE + column;
      let b = vec4<f32>(right[at], right[at + 1u], right[at + 2u], right[at + 3u]);
      for (var r = 0u; r < 4u; r++) { sum[r] += left[m * TILE + row + r] * b; }
    }
    for (var r = 0u; r < 4u; r++) { total[r] += sum[r]; }
    workgroupBarrier();
  }
  for (var r = 0u; r < 4u; r++) {
    for (var c = 0u; c < 4u; c++) {
      let k = k0 + row + r;
      let n = n0 + column + c;
      if (k < params.K && n < params.N) { dB[k * params.N + n] = total[r][c]; }
    }
  }
}
