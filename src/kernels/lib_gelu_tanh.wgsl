// gelu by its tanh formula, which is x s(z) with the logistic function s and z = 2 sqrt(2 / pi)
// (x + 0.044715 x^3), and its derivative; see lib_silu.wgsl.
// Prelude: lib_vector1 or lib_vector4.

// Here |z| is 87: s(z) is 0 or 1 in f32 further out, where x^3 would overflow.
const EDGE: f32 = 10.0;
const LEAST_EXPONENT: f32 = -80.0;
const ROOT: f32 = 1.5957691216057308;
const CUBIC: f32 = 0.044715;

struct Sigmoid {
  value: Vec,       // s(z)
  complement: Vec,  // 1 - s(z), without cancellation
}

fn sigmoid(x: Vec) -> Sigmoid {
  let c = clamp(x, Vec(-EDGE), Vec(EDGE));
  let e = exp(max(-abs(ROOT * c * (Vec(1.0) + CUBIC * c * c)), Vec(LEAST_EXPONENT)));
  let larger = Vec(1.0) / (Vec(1.0) + e);
  let smaller = e * larger;
  let positive = x >= Vec(0.0);
  return Sigmoid(select(smaller, larger, positive), select(larger, smaller, positive));
}

fn activate(x: Vec, s: Sigmoid) -> Vec {
  return select(x * s.value, Vec(0.0), x < Vec(-EDGE));
}

fn activation_slope(x: Vec, s: Sigmoid) -> Vec {
  let c = clamp(x, Vec(-EDGE), Vec(EDGE));
  let z_slope = ROOT * (Vec(1.0) + 3.0 * CUBIC * c * c);
  return s.value * (Vec(1.0) + c * s.complement * z_slope);
}
