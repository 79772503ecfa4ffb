// Conversions of stored elements to float. The quantised formats follow ggml's reference
// arithmetic operation by operation, so that the results have the same bits; this file is compiled
// without contraction of products and sums.
//
//   Q8_0  32 elements: d f16, q i8[32]                          y = q d
//   Q4_0  32: d f16, nibbles[16] (low: first half)              y = (q - 8) d
//   Q4_1  32: d f16, m f16, nibbles[16]                         y = q d + m
//   Q5_0  32: d f16, high bits u32, nibbles[16]                 y = (q - 16) d
//   Q5_1  32: d f16, m f16, high bits u32, nibbles[16]          y = q d + m
//   Q4_K  256: d f16, dmin f16, 8 scales and mins of 6 bits in 12 bytes, nibbles[128]
//                                                               y = (d s) q - (dmin m)
//   Q5_K  256: as Q4_K with high bits u8[32] before the nibbles
//   Q6_K  256: low nibbles[128], high pairs[64], scales i8[16], d f16
//                                                               y = (d s) (q - 32)
#include <fmt/format.h>

#include <cstring>

#include "io/dtype.h"
#include "io/half.h"
#include "wgrad/error.h"

namespace wgrad::io {
namespace {

using Byte = const std::uint8_t*;

template <typename T>
T load(Byte at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

float load_half(Byte at) { return f16_to_f32(load<std::uint16_t>(at)); }

void dequantize_q8_0(Byte block, float* out) {
  const float d = load_half(block);
  for (int j = 0; j < 32; ++j)
    out[j] = static_cast<float>(static_cast<std::int8_t>(block[2 + j])) * d;
}

void dequantize_q4_0(Byte block, float* out) {
  const float d = load_half(block);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((block[2 + j] & 15) - 8) * d;
    out[j + 16] = static_cast<float>((block[2 + j] >> 4) - 8) * d;
  }
}

void dequantize_q4_1(Byte block, float* out) {
  const float d = load_half(block);
  const float m = load_half(block + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(block[4 + j] & 15) * d + m;
    out[j + 16] = static_cast<float>(block[4 + j] >> 4) * d + m;
  }
}

// Element j of the 32 that a word of high bits and 16 bytes of nibbles hold.
int five_bits(std::uint32_t high, Byte nibbles, int j) {
  const int low = j < 16 ? nibbles[j] & 15 : nibbles[j - 16] >> 4;
  return low | static_cast<int>((high >> j) & 1u) << 4;
}

void dequantize_q5_0(Byte block, float* out) {
  const float d = load_half(block);
  const auto high = load<std::uint32_t>(block + 2);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(five_bits(high, block + 6, j) - 16) * d;
}

void dequantize_q5_1(Byte block, float* out) {
  const float d = load_half(block);
  const float m = load_half(block + 2);
  const auto high = load<std::uint32_t>(block + 4);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(five_bits(high, block + 8, j)) * d + m;
}

struct ScaleAndMin {
  int scale;
  int min;
};

// The 6-bit scale and minimum of sub-block j of 8: the first four in bytes 0-3 and 4-7, the low
// four bits of the others in bytes 8-11 and their high two on top of bytes 0-7.
ScaleAndMin scale_and_min(Byte packed, int j) {
  if (j < 4) return {packed[j] & 63, packed[j + 4] & 63};
  return {(packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4, (packed[j + 4] >> 4) | (packed[j] >> 6)
                                                                                       << 4};
}

// Q4_K without, Q5_K with `high` bits.
void dequantize_k_with_min(float d, float dmin, Byte scales, Byte high, Byte nibbles, float* out) {
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_and_min(scales, j);
    const float step = d * static_cast<float>(scale);
    const float offset = dmin * static_cast<float>(min);
    const Byte q = nibbles + j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      int value = (q[l] >> shift) & 15;
      if (high != nullptr) value |= ((high[l] >> j) & 1) << 4;
      out[j * 32 + l] = step * static_cast<float>(value) - offset;
    }
  }
}

void dequantize_q4_k(Byte block, float* out) {
  dequantize_k_with_min(load_half(block), load_half(block + 2), block + 4, nullptr, block + 16,
                        out);
}

void dequantize_q5_k(Byte block, float* out) {
  dequantize_k_with_min(load_half(block), load_half(block + 2), block + 4, block + 16, block + 48,
                        out);
}

void dequantize_q6_k(Byte block, float* out) {
  const float d = load_half(block + 208);
  for (int half = 0; half < 2; ++half) {
    const Byte low = block + half * 64;
    const Byte high = block + 128 + half * 32;
    const Byte scales = block + 192 + half * 8;
    for (int part = 0; part < 4; ++part) {
      for (int l = 0; l < 32; ++l) {
        const int nibble = (low[part % 2 * 32 + l] >> (part / 2 * 4)) & 15;
        const int value = (nibble | ((high[l] >> (part * 2)) & 3) << 4) - 32;
        const auto scale = static_cast<std::int8_t>(scales[part * 2 + l / 16]);
        out[half * 128 + part * 32 + l] = d * static_cast<float>(scale) * static_cast<float>(value);
      }
    }
  }
}

template <void (*dequantize)(Byte, float*)>
void blocks(FileType type, Byte in, std::span<float> out) {
  const std::size_t elements = block_elements(type);
  const std::size_t bytes = block_bytes(type);
  for (std::size_t i = 0; i < out.size() / elements; ++i) {
    dequantize(in + i * bytes, out.data() + i * elements);
  }
}

template <typename T>
void plain(Byte in, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(load<T>(in + i * sizeof(T)));
  }
}

template <float (*convert)(std::uint16_t)>
void halves(Byte in, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = convert(load<std::uint16_t>(in + 2 * i));
}

void convert(FileType type, Byte in, std::span<float> out) {
  switch (type) {
    case FileType::kF32:
      std::memcpy(out.data(), in, out.size_bytes());
      return;
    case FileType::kF16:
      return halves<f16_to_f32>(in, out);
    case FileType::kBF16:
      return halves<bf16_to_f32>(in, out);
    case FileType::kF64:
      return plain<double>(in, out);
    case FileType::kI64:
      return plain<std::int64_t>(in, out);
    case FileType::kI32:
      return plain<std::int32_t>(in, out);
    case FileType::kI16:
      return plain<std::int16_t>(in, out);
    case FileType::kI8:
      return plain<std::int8_t>(in, out);
    case FileType::kU64:
      return plain<std::uint64_t>(in, out);
    case FileType::kU32:
      return plain<std::uint32_t>(in, out);
    case FileType::kU16:
      return plain<std::uint16_t>(in, out);
    case FileType::kU8:
    case FileType::kBool:
      return plain<std::uint8_t>(in, out);
    case FileType::kQ8_0:
      return blocks<dequantize_q8_0>(type, in, out);
    case FileType::kQ4_0:
      return blocks<dequantize_q4_0>(type, in, out);
    case FileType::kQ4_1:
      return blocks<dequantize_q4_1>(type, in, out);
    case FileType::kQ5_0:
      return blocks<dequantize_q5_0>(type, in, out);
    case FileType::kQ5_1:
      return blocks<dequantize_q5_1>(type, in, out);
    case FileType::kQ4_K:
      return blocks<dequantize_q4_k>(type, in, out);
    case FileType::kQ5_K:
      return blocks<dequantize_q5_k>(type, in, out);
    case FileType::kQ6_K:
      return blocks<dequantize_q6_k>(type, in, out);
  }
}

}  // namespace

void to_f32(FileType type, std::span<const std::byte> bytes, std::span<float> out) {
  const std::size_t elements = block_elements(type);
  if (out.size() % elements != 0 || bytes.size() != out.size() / elements * block_bytes(type)) {
    throw runtime_failure(
        "to_f32",
        fmt::format("{} bytes of {} for {} floats", bytes.size(), file_type_name(type), out.size()),
        "whole blocks and one float an element");
  }
  if (out.empty()) return;
  convert(type, reinterpret_cast<Byte>(bytes.data()), out);
}

}  // namespace wgrad::io
