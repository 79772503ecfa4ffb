// lib_attention_scores.wgsl with scores s = SOFT_CAP tanh(scale q k^T / SOFT_CAP), whose slope is
// 1 - (s / SOFT_CAP)^2. Prelude: SOFT_CAP, lib_vector4, lib_tanh.

const LOG2_CAP: f32 = SOFT_CAP * 1.4426950408889634;

fn log2_scores(products: vec4<f32>) -> vec4<f32> {
  return LOG2_CAP * good_tanh(products * (params.scale / SOFT_CAP));
}

fn uncapped_grad(grad_s: vec4<f32>, log2_score: vec4<f32>) -> vec4<f32> {
  return grad_s * tanh_slope(log2_score / LOG2_CAP);
}
