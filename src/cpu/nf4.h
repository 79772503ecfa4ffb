#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/matmul.h"

/// NF4 as bitsandbytes stores it. The row-major weight is cut into blocks of 64 elements (which may
/// cross rows); an element is code * absmax of its block, with a 4-bit code, two to a byte, the
/// first in the high nibble. absmax itself is stored as 8-bit codes in blocks of 256:
/// absmax = dynamic_map[code] * nested_absmax + offset, with the product rounded to f32 before the
/// sum.
namespace wgrad::cpu {

inline constexpr int64_t kNf4Block = 64;
inline constexpr int64_t kNf4NestedBlock = 256;

inline constexpr std::array<float, 16> kNf4Table = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

/// Halfway between neighbouring codes, in f32: the code of w / absmax is the number of bounds
/// below.
constexpr std::array<float, 15> nf4_code_bounds() {
  std::array<float, 15> bounds{};
  for (size_t i = 0; i < bounds.size(); ++i) bounds[i] = (kNf4Table[i] + kNf4Table[i + 1]) / 2.0f;
  return bounds;
}

/// The signed dynamic 8-bit map: 256 ascending values that quantise absmax.
const std::array<float, 256>& nf4_dynamic_map();

/// Bytes and blocks of a weight of n elements.
constexpr int64_t nf4_packed_bytes(int64_t n) { return (n + 1) / 2; }
constexpr int64_t nf4_blocks(int64_t n) { return (n + kNf4Block - 1) / kNf4Block; }
constexpr int64_t nf4_nested_blocks(int64_t n) {
  return (nf4_blocks(n) + kNf4NestedBlock - 1) / kNf4NestedBlock;
}

/// Each element becomes the nearest code of w / absmax; halfway between two, the lower one.
void quantise_nf4(const float* w,   // [n]
                  int64_t n,        //
                  uint8_t* packed,  // [nf4_packed_bytes(n)], set
                  float* absmax);   // [nf4_blocks(n)], set

/// The mean of absmax, summed in double and rounded once.
float nf4_absmax_offset(const float* absmax, int64_t blocks);

/// absmax - offset, each block of 256 divided by its largest magnitude, to the nearest value of the
/// dynamic map.
void quantise_nf4_absmax(const float* absmax, int64_t blocks, float offset,
                         uint8_t* absmax_codes,  // [blocks], set
                         float* nested_absmax);  // [ceil(blocks / 256)], set

/// A quantised weight in memory that someone else owns: either absmax is given, or, double
/// quantised, absmax_codes with nested_absmax and offset (then absmax is null).
struct Nf4View {
  const uint8_t* packed = nullptr;        // [nf4_packed_bytes(n)]
  const float* absmax = nullptr;          // [nf4_blocks(n)] or null
  const uint8_t* absmax_codes = nullptr;  // [nf4_blocks(n)]
  const float* nested_absmax = nullptr;   // [nf4_nested_blocks(n)]
  const float* dynamic_map = nullptr;     // [256]; null: nf4_dynamic_map()
  float offset = 0.0f;
};

/// The scale of one block, in bitsandbytes' order of roundings.
float nf4_block_absmax(const Nf4View& weight, int64_t block);

/// Elements [first, first + count) of the weight.
void dequantise_nf4(const Nf4View& weight, int64_t first, int64_t count,
                    float* out);  // [count], set

/// The products of a linear layer with an NF4 weight W[out_features, in_features], which is
/// dequantised a few rows at a time:
///   kNT: c[m, out_features] (+)= alpha a[m, in_features] W^T
///   kNN: c[m, in_features] (+)= alpha a[m, out_features] W
template <class T>
void matmul_nf4(MatmulOp op, int64_t m, int64_t out_features, int64_t in_features,  //
                const T* a, int64_t lda, const Nf4View& weight,                     //
                T* c, int64_t ldc, T alpha = T(1), bool accumulate = false);

}  // namespace wgrad::cpu
