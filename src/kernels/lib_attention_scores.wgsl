// What products of q and k become: scores times log2(e), and the slope of that.
// lib_attention_capped_scores.wgsl is the same with a soft cap.

fn log2_scores(products: vec4<f32>) -> vec4<f32> { return products * params.scale_log2e; }

// The gradient of a score becomes that of the score before any cap.
fn uncapped_grad(grad_s: vec4<f32>, log2_score: vec4<f32>) -> vec4<f32> { return grad_s; }
