#pragma once

#include <cstdint>
#include <cstring>

#include "io/half.h"

namespace wgrad::io {

/// One block of 256 elements; see dequantize.cc for the layouts. All values are finite.
void quantize_q4_k(const float* in, std::uint8_t* block);
void quantize_q5_k(const float* in, std::uint8_t* block);
void quantize_q6_k(const float* in, std::uint8_t* block);

/// Stores a scale as a half and gives what a reader will see.
inline float store_half(std::uint8_t* at, float value) {
  const std::uint16_t bits = f32_to_f16(value);
  std::memcpy(at, &bits, sizeof(bits));
  return f16_to_f32(bits);
}

}  // namespace wgrad::io
