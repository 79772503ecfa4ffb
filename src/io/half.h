#pragma once

#include <bit>
#include <cstdint>

namespace wgrad::io {

/// Bits of an IEEE half to float; exact for every value, payloads of NaN kept.
constexpr float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude << 13));
  const float value = magnitude < 0x400u
                          ? static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f
                          : std::bit_cast<float>((magnitude << 13) + (112u << 23));
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
}

/// Float to the nearest half, ties to even; beyond 65520 to infinity, NaN stays a (quiet) NaN.
constexpr std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the spacing is 2^-24 = the spacing of floats in [0.5, 1): the sum rounds.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3f000000u));
  }
  magnitude -= 112u << 23;
  magnitude += 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | (magnitude >> 13));
}

/// Bits of a bfloat16 to float: exact.
constexpr float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

/// Float to the nearest bfloat16, ties to even; NaN stays a (quiet) NaN.
constexpr std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace wgrad::io
