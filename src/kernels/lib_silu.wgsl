// silu(x) = x s(x), s the logistic function, and its derivative, finite for every finite x.
// lib_gelu_tanh.wgsl and lib_gelu.wgsl are the same for other activations.
// Prelude: lib_vector1 or lib_vector4.

// Past this the logistic function is 0 or 1 in f32, and exp() would overflow.
const EDGE: f32 = 80.0;

struct Sigmoid {
  value: Vec,       // s(x)
  complement: Vec,  // 1 - s(x), without cancellation
}

fn sigmoid(x: Vec) -> Sigmoid {
  let e = exp(-min(abs(x), Vec(EDGE)));
  let larger = Vec(1.0) / (Vec(1.0) + e);
  let smaller = e * larger;
  let positive = x >= Vec(0.0);
  return Sigmoid(select(smaller, larger, positive), select(larger, smaller, positive));
}

fn activate(x: Vec, s: Sigmoid) -> Vec {
  return select(x * s.value, Vec(0.0), x < Vec(-EDGE));
}

fn activation_slope(x: Vec, s: Sigmoid) -> Vec {
  return s.value * (Vec(1.0) + clamp(x, Vec(-EDGE), Vec(EDGE)) * s.complement);
}
