#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "gpu/device.h"
#include "ops/matmul.h"

namespace wgrad::ops {

/// The product of f16 operands in blocks (ops/f16_blocks.h) on subgroup matrices of 16x16x16, with
/// f32 accumulation and f32 output. Subgroups have 32 invocations; each owns wm x wn of the
/// workgroup's bm x bn block. Whatever enters the loop's addresses is a constant of the text:
/// reading sizes from a buffer costs registers and 8 to 13 % of the speed.
///
/// Operands by op, as stored: kNT A[m, k], B[n, k]; kNN A[m, k], B[k, n]; kTN A[k, m], B[k, n].
/// Both are padded to whole blocks of 32; what a tile reads beyond rows or columns of the output
/// is not stored, and is clamped to the operand where it is not padded to the tile.
struct GemmKernel {
  MatmulOp op = MatmulOp::kNT;
  int bm = 256, bn = 128, wm = 64, wn = 64;
  /// Three slices of 16 along the reduction in workgroup memory with the next 32 in registers, or
  /// (for small blocks and small memories) two slices with the next two in registers.
  bool ring = true;
  int64_t a_columns = 0, b_columns = 0;  ///< as stored, padded to 32
  int64_t chunks = 0;                    ///< of 32 along the reduction; 0: the uniform's
  /// The reduction is cut into parts of the uniform's chunks: C is [parts, m, n], to be summed.
  bool parts = false;
  bool clamp_a = false, clamp_b = false;

  bool a_scale_per_row = true;  ///< else one scale for all of A
  enum class ScaleB : uint8_t { kNone, kOne, kPerColumn };
  ScaleB b_scale = ScaleB::kNone;
  bool bias = false;
  bool store_vec4 = true;
  /// Padded rank of a term that is added to the result in the same pass: small [m, rank] (f16, row
  /// by row, with a factor a row) times factor^T [n, rank] (kNT) or factor [rank, n] (kNN). 0:
  /// none.
  int64_t low_rank = 0;

  auto operator<=>(const GemmKernel&) const = default;
  int subgroups() const { return (bm / wm) * (bn / wn); }
  int workgroup_bytes() const;
};

/// C = factor scale_a scale_b op(A, B) (+ bias) (+ C). Strides and offsets count elements of C.
struct GemmParams {
  uint32_t m, n, tiles_m, tiles_n;
  uint32_t ldc, c_offset, bias_offset, accumulate;
  uint32_t chunks, a_blocks, b_blocks;  ///< rows (kTN: columns) of blocks that may be read
  float factor;
  uint32_t a_offset, b_offset;  ///< of the first block, in units of 16 bytes
  uint32_t b_scale_offset;
  uint32_t low_rank_rows, low_rank_columns;  ///< of small and factor that may be read
  uint32_t low_rank_row, low_rank_column;    ///< that belong to the first of C
  uint32_t all_chunks;                       ///< of all parts
};
static_assert(sizeof(GemmParams) == 80);

/// Bindings: A, B, scales of A, [scales of B], [bias], [small, its factors, factor], C.
std::string gemm_source(const GemmKernel& kernel);
const gpu::KernelSpec& gemm_kernel_spec(const GemmKernel& kernel);

}  // namespace wgrad::ops
