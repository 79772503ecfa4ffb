#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// A matrix in f16 blocks (ops/f16_blocks.h) with the factors that its values must be multiplied
/// by: one a row, one for all on the device, or one known on the host.
struct F16Operand {
  Tensor blocks;  ///< f16, flat; may hold rows beyond `rows` that are read and not used
  Tensor scales;  ///< f32 [rows], f32 [2] (the factor, its inverse), or empty
  bool per_row = false;
  float scale = 1.0f;  ///< where `scales` is empty
  int64_t rows = 0, columns = 0;
};

/// Rows that the tiles of the largest kernel read: operands made here are allocated up to this.
inline constexpr int64_t kF16TileRows = 256;

/// An operand to be filled, with a factor for each of scales.size() rows.
F16Operand allocate_f16_rows(Context& ctx, int64_t columns, const Tensor& scales);

/// Packs `rows` rows of x (contiguous, f32) with a factor for each row.
F16Operand pack_f16_rows(Context& ctx, const Tensor& x, int64_t rows, int64_t columns);

/// The factor for all of x: f32 [2], the factor and its inverse.
Tensor amax_scale(Context& ctx, const Tensor& x);
/// Packs rows of x with a factor from amax_scale.
F16Operand pack_f16_scaled(Context& ctx, const Tensor& x, int64_t rows, int64_t columns,
                           const Tensor& scale);
/// The same into rows [row, row + rows) of existing blocks; `row` is a multiple of 32.
void pack_f16_into(Context& ctx, const Tensor& x, int64_t rows, int64_t columns,
                   const Tensor& scale, const Tensor& blocks, int64_t row);

}  // namespace wgrad::ops
