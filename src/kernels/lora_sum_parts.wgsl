// Adds the parts of lora_matrix_source.h's gradients, in their order, to
//   grad_b  f32 [out, rank] += alpha times the sum of the first parts_b parts
//   grad_a  f32 [rank, in] += the sum of the following parts_a
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

@group(0) @binding(0) var<storage, read> parts: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read_write> grad_b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> grad_a: array<vec4<f32>>;
@group(0) @binding(4) var<uniform> p: Params;

fn total(first: u32, stride: u32, first_part: u32, count: u32) -> vec4<f32> {
  var sum = vec4<f32>();
  for (var i = 0u; i < count; i++) {
    sum += parts[first + i * stride] * scales[first_part + i];
  }
  return sum;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let at = (wg.x + wg.y * grid.x) * 256u + t;
  let count_b = p.out * p.rank_quads;
  let count_a = p.rank_quads * 4u * p.in_quads;
  if (at < count_b) {
    let element = at / p.rank_quads * p.padded_rank_quads + at % p.rank_quads;
    grad_b[at] += p.alpha * total(element, p.size_b, 0u, p.parts_b);
  } else if (at - count_b < count_a) {
    let i = at - count_b;
    let element = i / p.in_quads * p.padded_in_quads + i % p.in_quads;
    grad_a[i] += total(p.size_b * p.parts_b + element, p.size_a, p.parts_b, p.parts_a);
  }
}
