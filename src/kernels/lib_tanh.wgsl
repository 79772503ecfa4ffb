// tanh(x), finite for every finite x and good to 20 roundings, relative: WGSL's own may overflow and
// may err by any multiple of that where it is small. By the fitted odd series where the other form
// would cancel; else 1 - 2 e / (1 + e) with e = exp(-2 |x|), of which exp() may lose
// (3 + 4 |x|) ulp, that is 4 roundings of the result, and the division 6.
// Prelude: lib_vector1 or lib_vector4.

const SERIES_EDGE: f32 = 0.5;
const TANH_EDGE: f32 = 10.0;  // past it the result is 1 in f32

fn good_tanh(x: Vec) -> Vec {
  let c = clamp(x, Vec(-SERIES_EDGE), Vec(SERIES_EDGE));
  let square = c * c;
  var series = Vec(1.7241492e-2);
  series = series * square - Vec(5.3045495e-2);
  series = series * square + Vec(0.13325879);
  series = series * square - Vec(0.33333144);
  let small = c + c * square * series;
  let e = exp(-2.0 * min(abs(x), Vec(TANH_EDGE)));
  let large = Vec(1.0) - 2.0 * e / (Vec(1.0) + e);
  return select(select(large, -large, x < Vec(0.0)), small, abs(x) < Vec(SERIES_EDGE));
}

// The derivative where tanh is t.
fn tanh_slope(t: Vec) -> Vec { return (Vec(1.0) - t) * (Vec(1.0) + t); }
