// gelu(x) = x s(x), s the distribution function of the normal distribution, and its derivative; see
// lib_silu.wgsl. For negative x, s is exp(-x^2 / 2) t p(t) with t = 1 / (1 + 0.27 |x|) and a
// polynomial p fitted to 2^-25, relative; for positive x it is the complement of that.
// Prelude: lib_vector1 or lib_vector4.

// Here the exponent is -80: s is 0 or 1 in f32 further out.
const EDGE: f32 = 12.649;

struct Sigmoid {
  value: Vec,    // s(x)
  density: Vec,  // its derivative
}

fn sigmoid(x: Vec) -> Sigmoid {
  let magnitude = min(abs(x), Vec(EDGE));
  let e = exp(-0.5 * magnitude * magnitude);
  let t = Vec(1.0) / (Vec(1.0) + 0.27 * magnitude);
  var p = Vec(2.877844436e-2);
  p = p * t - Vec(0.1255641394);
  p = p * t + Vec(0.1678020601);
  p = p * t - Vec(6.683643425e-2);
  p = p * t + Vec(0.1061020786);
  p = p * t + Vec(7.28248649e-2);
  p = p * t + Vec(0.1016001183);
  p = p * t + Vec(0.1075743409);
  p = p * t + Vec(0.1077186777);
  let tail = e * (t * p);
  return Sigmoid(select(tail, Vec(1.0) - tail, x >= Vec(0.0)), 0.3989422804 * e);
}

fn activate(x: Vec, s: Sigmoid) -> Vec {
  return select(x * s.value, Vec(0.0), x < Vec(-EDGE));
}

fn activation_slope(x: Vec, s: Sigmoid) -> Vec {
  return s.value + clamp(x, Vec(-EDGE), Vec(EDGE)) * s.density;
}
