#pragma once

#include <cstdint>

namespace wgrad::cpu {

/// Columns of a tile are padded to a multiple of this.
inline constexpr int64_t kTileColumns = 16;

constexpr int64_t padded_columns(int64_t n) {
  return (n + kTileColumns - 1) / kTileColumns * kTileColumns;
}

/// c[m,n] = a b, or c += a b: a product of tiles that lie in a core's cache, on the calling thread.
/// Element (i, l) of a is a[i * a_row + l * a_column]; b and c are row-major. n must be a multiple
/// of kTileColumns. Each element is summed in the order of k.
void tile_product(int64_t m, int64_t n, int64_t k,                  //
                  const float* a, int64_t a_row, int64_t a_column,  //
                  const float* b, int64_t ldb,                      //
                  float* c, int64_t ldc, bool accumulate);

}  // namespace wgrad::cpu
