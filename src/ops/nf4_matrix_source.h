#pragma once

#include <compare>
#include <cstdint>

#include "gpu/device.h"
#include "ops/matmul.h"
#include "ops/nf4_source.h"

namespace wgrad::ops {

/// A part along the reduction of x W^T (kNT) or x W (kNN) for up to 64 rows of x in f16 blocks
/// (ops/f16_blocks.h) and an NF4 weight whose rows are whole blocks of 64, on f16 subgroup
/// matrices. A workgroup of four subgroups decodes tiles of 16 rows by 256 columns of the weight
/// into workgroup memory and multiplies them: subgroup s the columns [64 s, 64 s + 64) of each
/// tile, which are a quarter of the reduction (kNT; the sums of the four meet at the end) or of the
/// output (kNN).
struct Nf4MatrixKernel {
  MatmulOp op = MatmulOp::kNT;  ///< or kNN
  int row_blocks = 1;           ///< of 16 rows of x: 1 to 4
  int tiles = 2;  ///< of one round, below one another: their codes are loaded together

  auto operator<=>(const Nf4MatrixKernel&) const = default;
};

inline constexpr int kNf4TileRows = 16, kNf4TileColumns = 256;
/// Workgroup memory of these kernels.
inline constexpr int kNf4MatrixBytes = nf4_pair_bytes(32) + 16 * 35 * kNf4TileRows;

/// With one part y is set: factor x op(W) (+ bias) (+ y), and parts of m n elements otherwise.
struct Nf4MatrixParams {
  uint32_t m, out, units, column_blocks;  ///< of W: rows, 32s of a row; of x: 16s of a row
  uint32_t strips, parts, rounds;  ///< workgroups of a part; parts; rounds of one part at most
  uint32_t ldc, c_offset, part_stride, bias_offset;
  uint32_t accumulate, has_bias;
  float absmax_offset, divisor, factor;  ///< decoded values are multiplied by divisor = 1 / factor
};
static_assert(sizeof(Nf4MatrixParams) == 64);

/// Bindings: x, its row scales, codes, absmax codes, absmax scales, bias, y.
const gpu::KernelSpec& nf4_matrix_kernel(const Nf4MatrixKernel& kernel);

}  // namespace wgrad::ops
