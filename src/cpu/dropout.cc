#include "cpu/dropout.h"

#include <cmath>

#include "cpu/instantiate.h"
#include "cpu/parallel.h"
#include "cpu/scalar.h"
#include "cpu/vector_math.h"

namespace wgrad::cpu {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53u;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kKeyStep0 = 0x9E3779B9u;
constexpr uint32_t kKeyStep1 = 0xBB67AE85u;
constexpr int kRounds = 10;

constexpr uint32_t low_word(uint64_t x) { return static_cast<uint32_t>(x); }
constexpr uint32_t high_word(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

/// The four words of a block, in place of its counter.
WGRAD_INLINE void philox_rounds(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, uint32_t k0,
                                uint32_t k1) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * c0;
    const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * c2;
    const uint32_t next0 = high_word(product1) ^ c1 ^ k0;
    const uint32_t next2 = high_word(product0) ^ c3 ^ k1;
    c1 = low_word(product1);
    c3 = low_word(product0);
    c0 = next0;
    c2 = next2;
    k0 += kKeyStep0;
    k1 += kKeyStep1;
  }
}

constexpr int64_t kBlocksAtOnce = 64;

/// The words of kBlocksAtOnce consecutive blocks.
WGRAD_MULTIVERSION
void random_words(uint64_t first_block, uint64_t seed, uint64_t stream, uint32_t* words) {
#pragma omp simd
  for (int64_t b = 0; b < kBlocksAtOnce; ++b) {
    const uint64_t block = first_block + static_cast<uint64_t>(b);
    uint32_t c0 = low_word(block);
    uint32_t c1 = high_word(block);
    uint32_t c2 = low_word(stream);
    uint32_t c3 = high_word(stream);
    philox_rounds(c0, c1, c2, c3, low_word(seed), high_word(seed));
    words[4 * b] = c0;
    words[4 * b + 1] = c1;
    words[4 * b + 2] = c2;
    words[4 * b + 3] = c3;
  }
}

template <class T>
WGRAD_INLINE void apply_mask(const T* x, T* y, int64_t n, const uint32_t* words, uint32_t threshold,
                             T factor) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = words[i] >= threshold ? x[i] * factor : T(0);
}

WGRAD_MULTIVERSION
void apply_mask_f32(const float* x, float* y, int64_t n, const uint32_t* words, uint32_t threshold,
                    float factor) {
  apply_mask(x, y, n, words, threshold, factor);
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  philox_rounds(counter[0], counter[1], counter[2], counter[3], key[0], key[1]);
  return counter;
}

uint32_t dropout_threshold(double p) { return static_cast<uint32_t>(std::floor(p * 4294967296.0)); }

template <class T>
void dropout(const T* x, T* y, int64_t n, double p, uint64_t seed, uint64_t stream,
             uint64_t first_element) {
  const uint32_t threshold = dropout_threshold(p);
  const T factor = constant<T>(1.0 / (1.0 - p));
  constexpr int64_t kElements = 4 * kBlocksAtOnce;
  const uint64_t first_block = first_element / 4;
  const int64_t skipped = static_cast<int64_t>(first_element % 4);
  constexpr int64_t kWork = 16;
  parallel_blocks(n + skipped, kElements, kWork, [&](int64_t begin, int64_t end) {
    uint32_t words[kElements];
    random_words(first_block + static_cast<uint64_t>(begin / 4), seed, stream, words);
    const int64_t from = std::max(begin, skipped);
    const T* in = x + (from - skipped);
    T* out = y + (from - skipped);
    const uint32_t* word = words + (from - begin);
    if constexpr (std::is_same_v<T, float>) {
      apply_mask_f32(in, out, end - from, word, threshold, factor);
    } else {
      apply_mask(in, out, end - from, word, threshold, factor);
    }
  });
}

#define WGRAD_INSTANTIATE(T) \
  template void dropout<T>(const T*, T*, int64_t, double, uint64_t, uint64_t, uint64_t);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
