#include "cpu/nf4.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <vector>

#include "cpu/instantiate.h"
#include "cpu/parallel.h"
#include "wgrad/error.h"

namespace wgrad::cpu {
namespace {

/// Index of the value nearest to x in the ascending `table`.
int nearest(const std::array<float, 256>& table, float x) {
  const auto upper = std::upper_bound(table.begin(), table.end(), x);
  if (upper == table.begin()) return 0;
  const int index = static_cast<int>(upper - table.begin()) - 1;
  if (index == 255) return index;
  const float below = std::fabs(x - table[static_cast<size_t>(index)]);
  const float above = std::fabs(x - table[static_cast<size_t>(index) + 1]);
  return above < below ? index + 1 : index;
}

float largest_magnitude(const float* x, int64_t n) {
  float largest = 0.0f;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

uint8_t code_of(float x, const std::array<float, 15>& bounds) {
  int code = 0;
  for (float bound : bounds) code += bound < x ? 1 : 0;
  return static_cast<uint8_t>(code);
}

/// Element i of `items` + 1 evenly spaced values from 0.1 to 1, as torch.linspace rounds them: from
/// the nearer end, with one rounding.
float linspace_element(int i, int items) {
  const float step = (1.0f - 0.1f) / static_cast<float>(items);
  return i < (items + 1) / 2
             ? static_cast<float>(static_cast<double>(0.1f) + static_cast<double>(step) * i)
             : static_cast<float>(1.0 - static_cast<double>(step) * (items - i));
}

/// Seven decades below 1; the upper the decade, the more values it has: 2^e in decade e.
std::array<float, 256> build_dynamic_map() {
  std::array<float, 256> map{};
  size_t count = 0;
  for (int decade = 0; decade < 7; ++decade) {
    const int items = 1 << decade;
    const float power = static_cast<float>(std::pow(10.0, decade - 6));
    for (int i = 0; i < items; ++i) {
      const float value =
          power * ((linspace_element(i, items) + linspace_element(i + 1, items)) / 2.0f);
      map[count++] = value;
      map[count++] = -value;
    }
  }
  map[count++] = 0.0f;
  map[count++] = 1.0f;
  std::sort(map.begin(), map.end());
  return map;
}

/// How many rows of a weight are dequantised at a time: about 1 MiB of f32, within a core's cache.
int64_t rows_at_once(int64_t in_features) {
  return std::max<int64_t>(1, (int64_t{1} << 18) / std::max<int64_t>(in_features, 1));
}

/// Both values of every byte, side by side: one look-up a byte.
constexpr std::array<std::array<float, 2>, 256> kPairs = [] {
  std::array<std::array<float, 2>, 256> pairs{};
  for (size_t byte = 0; byte < 256; ++byte)
    pairs[byte] = {kNf4Table[byte >> 4], kNf4Table[byte & 15]};
  return pairs;
}();

/// `count` elements from element `first` of the weight on, all of one block.
void dequantise_block(const uint8_t* packed, float absmax, int64_t first, int64_t count,
                      float* out) {
  int64_t i = 0;
  if (first % 2 != 0 && count > 0) out[i++] = kNf4Table[packed[first / 2] & 15];
  const uint8_t* bytes = packed + (first + i) / 2;
  for (; i + 1 < count; i += 2) std::memcpy(out + i, kPairs[*bytes++].data(), 2 * sizeof(float));
  if (i < count) out[i] = kNf4Table[*bytes >> 4];
  for (i = 0; i < count; ++i) out[i] *= absmax;
}

}  // namespace

const std::array<float, 256>& nf4_dynamic_map() {
  static const std::array<float, 256> map = build_dynamic_map();
  return map;
}

void quantise_nf4(const float* w, int64_t n, uint8_t* packed, float* absmax) {
  constexpr std::array<float, 15> bounds = nf4_code_bounds();
  parallel_for(nf4_blocks(n), 32 * kNf4Block, [&](int64_t block) {
    const int64_t begin = block * kNf4Block;
    const int64_t count = std::min(kNf4Block, n - begin);
    // bitsandbytes multiplies whole blocks by the reciprocal and divides a last, shorter one.
    const bool whole = count == kNf4Block;
    const float largest = largest_magnitude(w + begin, count);
    const float divisor = std::max(largest, 1e-38f);
    const float reciprocal = 1.0f / divisor;
    uint8_t codes[kNf4Block + 1];
    codes[count] = 7;  // the other half of an odd weight's last byte: zero
    for (int64_t i = 0; i < count; ++i) {
      const float scaled = whole ? w[begin + i] * reciprocal : w[begin + i] / divisor;
      codes[i] = code_of(std::clamp(scaled, -1.0f, 1.0f), bounds);
    }
    absmax[block] = whole ? largest : divisor;
    for (int64_t i = 0; i < count; i += 2) {
      packed[(begin + i) / 2] = static_cast<uint8_t>(codes[i] << 4 | codes[i + 1]);
    }
  });
}

float nf4_absmax_offset(const float* absmax, int64_t blocks) {
  if (blocks == 0) return 0.0f;
  double sum = 0.0;
  for (int64_t i = 0; i < blocks; ++i) sum += static_cast<double>(absmax[i]);
  return static_cast<float>(sum / static_cast<double>(blocks));
}

void quantise_nf4_absmax(const float* absmax, int64_t blocks, float offset, uint8_t* absmax_codes,
                         float* nested_absmax) {
  const std::array<float, 256>& map = nf4_dynamic_map();
  parallel_for(ceil_div(blocks, kNf4NestedBlock), 32 * kNf4NestedBlock, [&](int64_t nested) {
    const int64_t begin = nested * kNf4NestedBlock;
    const int64_t count = std::min(kNf4NestedBlock, blocks - begin);
    float centred[kNf4NestedBlock];
    for (int64_t i = 0; i < count; ++i) centred[i] = absmax[begin + i] - offset;
    const float largest = largest_magnitude(centred, count);
    nested_absmax[nested] = largest;
    for (int64_t i = 0; i < count; ++i) {
      // Code 0 times 0, as bitsandbytes has it, where no block differs from the offset.
      absmax_codes[begin + i] =
          largest > 0.0f ? static_cast<uint8_t>(nearest(map, centred[i] / largest)) : uint8_t{0};
    }
  });
}

float nf4_block_absmax(const Nf4View& weight, int64_t block) {
  if (weight.absmax != nullptr) return weight.absmax[block];
  const float* map = weight.dynamic_map != nullptr ? weight.dynamic_map : nf4_dynamic_map().data();
  // volatile: the product is rounded before the sum, never fused with it.
  const volatile float product =
      map[weight.absmax_codes[block]] * weight.nested_absmax[block / kNf4NestedBlock];
  return product + weight.offset;
}

void dequantise_nf4(const Nf4View& weight, int64_t first, int64_t count, float* out) {
  if (count <= 0) return;
  const int64_t first_block = first / kNf4Block;
  const int64_t last_block = (first + count - 1) / kNf4Block;
  parallel_for(last_block - first_block + 1, 2 * kNf4Block, [&](int64_t i) {
    const int64_t block = first_block + i;
    const int64_t begin = std::max(first, block * kNf4Block);
    const int64_t end = std::min(first + count, (block + 1) * kNf4Block);
    dequantise_block(weight.packed, nf4_block_absmax(weight, block), begin, end - begin,
                     out + (begin - first));
  });
}

template <class T>
void matmul_nf4(MatmulOp op, int64_t m, int64_t out_features, int64_t in_features, const T* a,
                int64_t lda, const Nf4View& weight, T* c, int64_t ldc, T alpha, bool accumulate) {
  if (op == MatmulOp::kTN) {
    throw runtime_failure("matmul_nf4", "the TN form", "NT or NN",
                          "a quantised weight has no gradient");
  }
  const int64_t tile = std::min(out_features, rows_at_once(in_features));
  std::vector<float> rows(static_cast<size_t>(tile * in_features));
  std::vector<T> converted(std::is_same_v<T, float> ? 0 : rows.size());
  for (int64_t first = 0; first < out_features; first += tile) {
    const int64_t count = std::min(tile, out_features - first);
    dequantise_nf4(weight, first * in_features, count * in_features, rows.data());
    const T* w;
    if constexpr (std::is_same_v<T, float>) {
      w = rows.data();
    } else {
      std::copy(rows.begin(), rows.begin() + count * in_features, converted.begin());
      w = converted.data();
    }
    if (op == MatmulOp::kNT) {
      matmul(op, m, count, in_features, a, lda, w, in_features, c + first, ldc, alpha, accumulate);
    } else {
      matmul(op, m, in_features, count, a + first, lda, w, in_features, c, ldc, alpha,
             accumulate || first > 0);
    }
  }
}

#define WGRAD_INSTANTIATE(T)                                                          \
  template void matmul_nf4<T>(MatmulOp, int64_t, int64_t, int64_t, const T*, int64_t, \
                              const Nf4View&, T*, int64_t, T, bool);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
