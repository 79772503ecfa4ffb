// The second product of several adapters' terms for one token: y += scale B xa.
//   x  f32, the terms' xa, each [rank];  b0, b1, b2  f32 [rows, rank];  y  f32, the terms' y
// An invocation adds to one element of y, the rank ascending. Equal to cpu::matmul (kNT).

struct Term {
  end: u32,  // rows of this term and those before it
  x_offset: u32,
  b_offset: u32,
  y_offset: u32,
}

struct Params {
  terms: array<Term, 3>,
  rank: u32,
  scale: f32,
  unused_0: u32,
  unused_1: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> b0: array<f32>;
@group(0) @binding(2) var<storage, read> b1: array<f32>;
@group(0) @binding(3) var<storage, read> b2: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

@compute @workgroup_size(256)
fn lora_token_expand(@builtin(workgroup_id) group: vec3<u32>,
                     @builtin(num_workgroups) groups: vec3<u32>,
                     @builtin(local_invocation_index) t: u32) {
  let id = (group.x + group.y * groups.x) * 256u + t;
  if (id >= params.terms[2].end) { return; }
  var term = 0u;
  if (id >= params.terms[0].end) { term = 1u; }
  if (id >= params.terms[1].end) { term = 2u; }
  var row = id;
  if (term > 0u) { row -= params.terms[term - 1u].end; }
  let xa = params.terms[term].x_offset;
  let b = params.terms[term].b_offset + row * params.rank;
  var sum = 0.0;
  for (var i = 0u; i < params.rank; i++) {
    var factor = 0.0;
    if (term == 0u) {
      factor = b0[b + i];
    } else if (term == 1u) {
      factor = b1[b + i];
    } else {
      factor = b2[b + i];
    }
    sum += factor * x[xa + i];
  }
  y[params.terms[term].y_offset + row] += params.scale * sum;
}
