#pragma once

#include <cstdint>

/// The layout of f16 operands for subgroup matrices. A matrix [rows, columns] is padded with zeros
/// to multiples of 32 in both directions and cut into 16x16 blocks, ordered
/// [rows / 32][columns / 16][2]: 32 rows by 16 columns lie together, so that a product over the
/// columns and one over the rows both read it in long runs. A block is 32 units of 8 halves
/// (16 bytes); the unit of row r and half h is numbered so that 32 invocations, reading a unit
/// each, store to workgroup memory without bank conflicts.
namespace wgrad::ops {

inline constexpr int64_t kF16Panel = 32;  ///< rows and columns are padded to multiples of this

constexpr int64_t f16_padded(int64_t n) { return (n + kF16Panel - 1) / kF16Panel * kF16Panel; }

/// Halves in a blocked [rows, columns].
constexpr int64_t f16_blocks_size(int64_t rows, int64_t columns) {
  return f16_padded(rows) * f16_padded(columns);
}

/// Where the half of (row, column) lies, counted in halves.
constexpr int64_t f16_blocks_index(int64_t row, int64_t column, int64_t columns) {
  const int64_t r = row % 16, h = column / 8 % 2;
  const int64_t unit = h | (((r >> 1) & 3) << 1) | ((r & 1) << 3) | ((r >> 3) << 4);
  const int64_t block = (row / 32 * (f16_padded(columns) / 16) + column / 16) * 2 + row / 16 % 2;
  return block * 256 + unit * 8 + column % 8;
}

}  // namespace wgrad::ops
