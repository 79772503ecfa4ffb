// Placed before kernels written on Vec where lengths are no multiple of four (see
// lib_vector4.wgsl).
const LANES: u32 = 1u;
alias Vec = f32;
alias VecU = u32;
fn lanes_sum(v: Vec) -> f32 { return v; }
fn lanes_max(v: Vec) -> f32 { return v; }
fn lane(v: Vec, i: u32) -> f32 { return v; }
fn one_hot(i: u32) -> Vec { return select(0.0, 1.0, i == 0u); }
