// Gradient of C[M,N] = A[M,K] B[K,N] by A: dA = dC B^T.
// dC [M, N], B [K, N], dA [M, K]; a workgroup computes a 64 x 64 tile of dA, an invocation 4 x 4 of
// it; tile = x + y * 65535, row by row; sets dA. Sums over 16 terms join the total at a time.

struct Params {
  M: u32,
  K: u32,
  N: u32,
}

@group(0) @binding(0) var<storage, read> dC: array<f32>;
@group(0) @binding(1) var<storage, read> B: array<f32>;
@group(0) @binding(2) var<storage, read_write> dA: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

const TILE: u32 = 64u;
const DEPTH: u32 = 16u;
const PITCH: u32 = 68u;  // a row of a staged tile, padded against bank conflicts
var<workgroup> left: array<f32, 1088>;
var<workgroup> right: array<f32, 1088>;

@compute @workgroup_size(256)
fn gemm_backward_a(@builtin(workgroup_id) group: vec3<u32>,
                   @builtin(num_workgroups) groups: vec3<u32>,
                   @builtin(local_invocation_index) t: u32) {
  let tile = group.x + group.y * groups.x;
  let columns = (params.K + TILE - 1u) / TILE;
  let m0 = (tile / columns) * TILE;
  let k0 = (tile % columns) * TILE;
  let row = (t / 16u) * 4u;
  let column = (t % 16u) * 4u;
  var total = array<vec4<f32>, 4>();
  for (var n0 = 0u; n0 < params.N; n0 += DEPTH) {
    for (var i = t; i < TILE * DEPTH; i += 256u) {
      let r = i / DEPTH;
      let n = n0 + i % DEPTH;
      var a = 0.0;
      var b = 0.0;
      if (n < params.N && m0 + r < params.M) { a = dC[(m0 + r) * params.N + n]; }
      if (n < params.N && k0 + r < params.K) { b = B[(k0 + r) * params.N + n]; }
      left[(i % DEPTH) * PITCH + r] = a;
      right[(i % DEPTH) * PITCH + r] = b;
    }
    workgroupBarrier();
    var sum = array<vec4<f32>, 4>();
    for (var n = 0u; n < DEPTH; n++) {
      let at = n * PITCH + column;
      let b = vec4<f32>(right[at], right[at + 1u], right[at + 2u], right[at + 3u]);
      for (var r = 0u; r < 4u; r++) { sum[r] += left[n * PITCH + row + r] * b; }
    }
    for (var r = 0u; r < 4u; r++) { total[r] += sum[r]; }
    workgroupBarrier();
  }
  for (var r = 0u; r < 4u; r++) {
    for (var c = 0u; c < 4u; c++) {
      let m = m0 + row + r;
      let k = k0 + column + c;
      if (m < params.M && k < params.K) { dA[m * params.K + k] = total[r][c]; }
    }
  }
}
