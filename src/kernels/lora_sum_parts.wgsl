// Adds the parts of lora_matrix_source.h's gradients, in their order, to
//   grad_b  f32 [out, rank] += alpha times the sum of of_b's
//   grad_a  f32 [rank, in] += the sum of of_a's
// A part of grad_b is [out padded to 32, rank padded to 16], one of grad_a [rank padded to 16, in
// padded to 32]; each is multiplied by its scale. All counts are of vec4.

struct Params {
  rank_quads: u32,
  padded_rank_quads: u32,
  out: u32,           // rows of grad_b
  in_quads: u32,      // of a row of grad_a
  padded_in_quads: u32,
  size_b: u32,        // of a part
  size_a: u32,
  parts_b: u32,
  parts_a: u32,
  alpha: f32,
}

@group(0) @binding(0) var<storage, read> of_b: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> scales_b: array<f32>;
@group(0) @binding(2) var<storage, read> of_a: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> scales_a: array<f32>;
@group(0) @binding(4) var<storage, read_write> grad_b: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> grad_a: array<vec4<f32>>;
@group(0) @binding(6) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let at = (wg.x + wg.y * grid.x) * 256u + t;
  let count_b = p.out * p.rank_quads;
  let count_a = p.rank_quads * 4u * p.in_quads;
  if (at < count_b) {
    let element = at / p.rank_quads * p.padded_rank_quads + at % p.rank_quads;
    var sum = vec4<f32>();
    for (var i = 0u; i < p.parts_b; i++) {
      sum += of_b[element + i * p.size_b] * scales_b[i];
    }
    grad_b[at] += p.alpha * sum;
  } else if (at - count_b < count_a) {
    let i = at - count_b;
    let element = i / p.in_quads * p.padded_in_quads + i % p.in_quads;
    var sum = vec4<f32>();
    for (var j = 0u; j < p.parts_a; j++) {
      sum += of_a[element + j * p.size_a] * scales_a[j];
    }
    grad_a[i] += sum;
  }
}
