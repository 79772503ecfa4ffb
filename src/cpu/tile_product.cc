#include "cpu/tile_product.h"

#include <cstring>

#include "cpu/vector_math.h"

namespace wgrad::cpu {
namespace {

/// 16 floats: one AVX-512 register, two of AVX2, four of SSE or NEON.
using Vector = float __attribute__((vector_size(kTileColumns * sizeof(float))));

/// By reference: a vector returned by value would have another calling convention in each version.
WGRAD_INLINE void load(Vector& to, const float* from) { std::memcpy(&to, from, sizeof to); }
WGRAD_INLINE void store(float* to, const Vector& from) { std::memcpy(to, &from, sizeof from); }

/// One strip of 16 columns, kRows rows: the sums stay in registers.
template <int kRows>
WGRAD_INLINE void strip(int64_t k, const float* a, int64_t a_row, int64_t a_column, const float* b,
                        int64_t ldb, float* c, int64_t ldc, bool accumulate) {
  Vector sum[kRows];
  for (int i = 0; i < kRows; ++i) {
    sum[i] = Vector{};
    if (accumulate) load(sum[i], c + i * ldc);
  }
  for (int64_t l = 0; l < k; ++l) {
    Vector right;
    load(right, b + l * ldb);
    for (int i = 0; i < kRows; ++i) sum[i] += a[i * a_row + l * a_column] * right;
  }
  for (int i = 0; i < kRows; ++i) store(c + i * ldc, sum[i]);
}

constexpr int kRowsAtOnce = 6;  // 12 of AVX2's 16 registers hold sums

}  // namespace

WGRAD_MULTIVERSION
void tile_product(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row, int64_t a_column,
                  const float* b, int64_t ldb, float* c, int64_t ldc, bool accumulate) {
  for (int64_t j = 0; j < n; j += kTileColumns) {
    int64_t i = 0;
    for (; i + kRowsAtOnce <= m; i += kRowsAtOnce) {
      strip<kRowsAtOnce>(k, a + i * a_row, a_row, a_column, b + j, ldb, c + i * ldc + j, ldc,
                         accumulate);
    }
    for (; i + 2 <= m; i += 2) {
      strip<2>(k, a + i * a_row, a_row, a_column, b + j, ldb, c + i * ldc + j, ldc, accumulate);
    }
    for (; i < m; ++i) {
      strip<1>(k, a + i * a_row, a_row, a_column, b + j, ldb, c + i * ldc + j, ldc, accumulate);
    }
  }
}

}  // namespace wgrad::cpu
