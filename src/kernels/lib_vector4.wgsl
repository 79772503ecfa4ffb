// Placed before kernels that work on vectors of four elements: every row or array that they see is
// a multiple of four elements long. lib_vector1.wgsl is the same for other lengths.
const LANES: u32 = 4u;
alias Vec = vec4<f32>;
alias VecU = vec4<u32>;
fn lanes_sum(v: Vec) -> f32 { return (v.x + v.y) + (v.z + v.w); }
fn lanes_max(v: Vec) -> f32 { return max(max(v.x, v.y), max(v.z, v.w)); }
fn lane(v: Vec, i: u32) -> f32 { return v[i]; }
fn one_hot(i: u32) -> Vec {
  return select(Vec(0.0), Vec(1.0), vec4<u32>(0u, 1u, 2u, 3u) == vec4<u32>(i));
}
