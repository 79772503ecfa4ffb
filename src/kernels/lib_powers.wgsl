// Exact powers of two that bring f32 values into f16's range.

// 2^(exponent - 14) for values below 2^(exponent + 1), kept where its inverse is a normal number
// too; 1 for zero. `largest` is the magnitude's bits.
fn inverse_power(largest: u32) -> f32 {
  let exponent = select(clamp(largest >> 23u, 15u, 255u), 141u, largest == 0u);
  return bitcast<f32>((exponent - 14u) << 23u);
}

fn inverse_of_power(power: f32) -> f32 { return bitcast<f32>((254u << 23u) - bitcast<u32>(power)); }

fn magnitude_bits(v: vec4<f32>) -> vec4<u32> {
  return bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
}

fn largest_of(v: vec4<u32>) -> u32 { return max(max(v.x, v.y), max(v.z, v.w)); }
