#pragma once

#include <compare>
#include <cstdint>

#include "gpu/device.h"

namespace wgrad::ops {

enum class MatvecWeight : uint8_t { kF32, kF16, kF16Blocks, kNF4 };

struct MatvecKernel {
  MatvecWeight weight = MatvecWeight::kF32;
  int rows = 1;  ///< of x: 1 to 8

  auto operator<=>(const MatvecKernel&) const = default;
  /// Columns of y that a workgroup computes.
  int group_rows() const { return weight == MatvecWeight::kF16Blocks ? 16 : 8; }
};

/// Offsets and strides: x in vec4s; y and bias in elements; the weight in units of 8 elements.
/// kF16Blocks: w_stride is the number of column blocks. kNF4: `origin` is the index of the
/// binding's first element in the whole weight (a multiple of 8), w_offset that of the first row
/// after it.
struct MatvecParams {
  uint32_t n, units, ldx, ldy;
  uint32_t x_offset, y_offset, bias_offset, w_offset;
  uint32_t w_stride, origin, accumulate, has_bias;
  float alpha, absmax_offset;
  uint32_t unused[2];
};
static_assert(sizeof(MatvecParams) == 64);

/// Bindings: x, bias, y, then the weight (kNF4: codes, absmax codes, absmax scales).
const gpu::KernelSpec& matvec_kernel_spec(const MatvecKernel& kernel);

}  // namespace wgrad::ops
