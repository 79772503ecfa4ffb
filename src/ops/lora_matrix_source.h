#pragma once

#include <compare>
#include <cstdint>

#include "gpu/device.h"

namespace wgrad::ops {

/// The products of a low-rank adapter with a wide operand in f16 blocks (ops/f16_blocks.h), on
/// subgroup matrices: each reads the operand once, 16 bits an element. `rank` is padded to 16.
enum class LoraMatrixStep : uint8_t {
  /// small[m, rank] = alpha wide factor^T (kForward) or alpha wide factor (kBackward), in f32, and
  /// in f16 [m padded to 32, rank padded] with a factor a row for the product that takes it next.
  /// Bindings: wide, its row scales, factor (f16), powers, small, its f16, the factors.
  kProject,
  /// A part of wide^T small over rows_per_part rows: [width, rank] (kForward's factor B) or its
  /// transpose [rank, width] (A), in units of the part's own power of two.
  /// Bindings: wide, its row scales, small, parts, the parts' powers.
  kGradient,
};

struct LoraMatrixKernel {
  LoraMatrixStep step = LoraMatrixStep::kProject;
  int64_t padded_rank = 16;  ///< 16, 32, 48 or 64
  /// kProject: the factor is [width, rank], else [rank, width]. kGradient: so is the result.
  bool factor_rows_are_wide = false;

  auto operator<=>(const LoraMatrixKernel&) const = default;
};

inline constexpr int64_t kLoraPanel = 32;           ///< rows of a workgroup of kProject
inline constexpr int64_t kLoraMatrixColumns = 256;  ///< columns of a workgroup of kGradient

/// Of both kernels; what one does not use is 0.
struct LoraMatrixParams {
  uint32_t m, rank, column_blocks;  ///< of 16 columns, as packed
  uint32_t rows_per_part, parts;    ///< kGradient: multiples of 32 rows
  uint32_t factor_power;  ///< kProject: which of `powers` belongs to the factor: 0 (a) or 1 (b)
  float alpha;            ///< kProject: of small
  float next_alpha;       ///< kProject: of the product that takes small next
};
static_assert(sizeof(LoraMatrixParams) == 32);

/// Rows of a part of kGradient at most: they lie in workgroup memory.
constexpr int64_t lora_most_part_rows(int64_t padded_rank) { return 8192 / padded_rank; }

const gpu::KernelSpec& lora_matrix_kernel(const LoraMatrixKernel& kernel);

}  // namespace wgrad::ops
