// Conversions of floats to stored elements; dequantize.cc has the layouts. The operations and their
// order are those of ggml's reference quantisers, so that the results have the same bits; this file
// and quantize_k.cc are compiled without contraction of products and sums.
#include "io/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/quantize_blocks.h"
#include "wgrad/error.h"

namespace wgrad::io {
namespace {

constexpr int kBlock = 32;
constexpr int kHalf = kBlock / 2;
constexpr float kLargestHalf = 65504.0f;

using Bytes = std::uint8_t*;

/// The value that is largest without its sign (the first of equals).
float extreme(const float* in) {
  float most = 0;
  float result = 0;
  for (int j = 0; j < kBlock; ++j) {
    if (most < std::fabs(in[j])) {
      most = std::fabs(in[j]);
      result = in[j];
    }
  }
  return result;
}

/// 0 also for a scale so small that its inverse overflows: as a half it is 0 anyway.
float inverse(float d) {
  const float result = d != 0 ? 1.0f / d : 0.0f;
  return std::isfinite(result) ? result : 0.0f;
}

void quantize_q8_0(const float* in, Bytes block) {
  const float d = std::fabs(extreme(in)) / 127;
  const float id = inverse(d);
  store_half(block, d);
  for (int j = 0; j < kBlock; ++j) {
    block[2 + j] = static_cast<std::uint8_t>(static_cast<std::int8_t>(std::round(in[j] * id)));
  }
}

/// Codes of `bits` bits around zero: the extreme value becomes the lowest code.
void symmetric_codes(const float* in, int bits, Bytes scale, std::uint8_t* codes) {
  const int zero = 1 << (bits - 1);
  const float d = extreme(in) / static_cast<float>(-zero);
  const float id = inverse(d);
  store_half(scale, d);
  for (int j = 0; j < kBlock; ++j) {
    const int code = static_cast<int>(in[j] * id + (static_cast<float>(zero) + 0.5f));
    codes[j] = static_cast<std::uint8_t>(std::min(2 * zero - 1, code));
  }
}

/// Codes of `bits` bits from the smallest value up to the largest.
void offset_codes(const float* in, int bits, Bytes scale, Bytes minimum, std::uint8_t* codes) {
  const auto [low, high] = std::minmax_element(in, in + kBlock);
  const float min = *low;
  const int most = (1 << bits) - 1;
  const float d = (*high - min) / static_cast<float>(most);
  const float id = inverse(d);
  store_half(scale, d);
  store_half(minimum, min);
  for (int j = 0; j < kBlock; ++j) {
    const int code = static_cast<int>((in[j] - min) * id + 0.5f);
    codes[j] = static_cast<std::uint8_t>(std::min(most, code));
  }
}

void store_nibbles(const std::uint8_t* codes, Bytes out) {
  for (int j = 0; j < kHalf; ++j) {
    out[j] = static_cast<std::uint8_t>((codes[j] & 15) | (codes[j + kHalf] & 15) << 4);
  }
}

void store_fifth_bits(const std::uint8_t* codes, Bytes out) {
  std::uint32_t high = 0;
  for (int j = 0; j < kBlock; ++j) high |= static_cast<std::uint32_t>(codes[j] >> 4) << j;
  std::memcpy(out, &high, sizeof(high));
}

void quantize_q4_0(const float* in, Bytes block) {
  std::uint8_t codes[kBlock];
  symmetric_codes(in, 4, block, codes);
  store_nibbles(codes, block + 2);
}

void quantize_q4_1(const float* in, Bytes block) {
  std::uint8_t codes[kBlock];
  offset_codes(in, 4, block, block + 2, codes);
  store_nibbles(codes, block + 4);
}

void quantize_q5_0(const float* in, Bytes block) {
  std::uint8_t codes[kBlock];
  symmetric_codes(in, 5, block, codes);
  store_fifth_bits(codes, block + 2);
  store_nibbles(codes, block + 6);
}

void quantize_q5_1(const float* in, Bytes block) {
  std::uint8_t codes[kBlock];
  offset_codes(in, 5, block, block + 2, codes);
  store_fifth_bits(codes, block + 4);
  store_nibbles(codes, block + 8);
}

template <void (*quantize)(const float*, Bytes)>
void blocks(FileType type, std::span<const float> in, Bytes out) {
  const std::size_t elements = block_elements(type);
  const std::size_t bytes = block_bytes(type);
  for (std::size_t i = 0; i < in.size() / elements; ++i) {
    quantize(in.data() + i * elements, out + i * bytes);
  }
}

template <std::uint16_t (*convert)(float)>
void halves(std::span<const float> in, Bytes out) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::uint16_t bits = convert(in[i]);
    std::memcpy(out + 2 * i, &bits, sizeof(bits));
  }
}

void check_values(FileType type, std::span<const float> values, std::string_view where) {
  const bool wide = type == FileType::kF32 || type == FileType::kBF16;
  const auto bad = std::find_if(values.begin(), values.end(), [wide](float x) {
    return !std::isfinite(x) || (!wide && std::fabs(x) > kLargestHalf);
  });
  if (bad == values.end()) return;
  if (!std::isfinite(*bad)) {
    throw input_error(where, fmt::format("a value is {}", *bad), "finite weights",
                      "check the model's files");
  }
  throw input_error(where, fmt::format("a value is {}", *bad),
                    fmt::format("at most {} for {}", kLargestHalf, file_type_name(type)),
                    "use --type bf16 or f32");
}

}  // namespace

bool is_floating(FileType type) {
  return type == FileType::kF32 || type == FileType::kF16 || type == FileType::kBF16 ||
         is_quantized(type);
}

void from_f32(FileType type, std::span<const float> values, std::span<std::byte> out,
              std::string_view where) {
  const std::size_t elements = block_elements(type);
  if (!is_floating(type) || values.size() % elements != 0 ||
      out.size() != values.size() / elements * block_bytes(type)) {
    throw runtime_failure("from_f32",
                          fmt::format("{} floats into {} bytes of {}", values.size(), out.size(),
                                      file_type_name(type)),
                          "whole blocks of a type of weights");
  }
  if (values.empty()) return;
  check_values(type, values, where);
  const auto bytes = reinterpret_cast<Bytes>(out.data());
  switch (type) {
    case FileType::kF16:
      return halves<f32_to_f16>(values, bytes);
    case FileType::kBF16:
      return halves<f32_to_bf16>(values, bytes);
    case FileType::kQ8_0:
      return blocks<quantize_q8_0>(type, values, bytes);
    case FileType::kQ4_0:
      return blocks<quantize_q4_0>(type, values, bytes);
    case FileType::kQ4_1:
      return blocks<quantize_q4_1>(type, values, bytes);
    case FileType::kQ5_0:
      return blocks<quantize_q5_0>(type, values, bytes);
    case FileType::kQ5_1:
      return blocks<quantize_q5_1>(type, values, bytes);
    case FileType::kQ4_K:
      return blocks<quantize_q4_k>(type, values, bytes);
    case FileType::kQ5_K:
      return blocks<quantize_q5_k>(type, values, bytes);
    case FileType::kQ6_K:
      return blocks<quantize_q6_k>(type, values, bytes);
    default:
      std::memcpy(bytes, values.data(), values.size_bytes());
  }
}

}  // namespace wgrad::io
