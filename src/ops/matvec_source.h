#pragma once

#include <compare>
#include <cstdint>

#include "gpu/device.h"
#include "ops/elementwise.h"

namespace wgrad::ops {

enum class MatvecWeight : uint8_t { kF32, kF16, kF16Blocks, kNF4 };

/// y[i, row] = alpha sum_k x[i, k] W[row, k] (+ bias[row]) (+ y[i, row]) for few rows of x. The
/// weight is read once, in the order of memory, several loads at a time. A workgroup computes
/// group_rows() columns of y; partial sums are added in a fixed order.
///
/// Up to three weights of one format and one width (members) can take the same row of x, each with
/// a part of y of its own. Then, for one row alone:
///   norm   x is RMS-normalised as it is read: x_k (weight_k + norm_add) / sqrt(mean x^2 + eps)
///   gated  two members of the same size: y = activation(first) second
struct MatvecKernel {
  MatvecWeight weight = MatvecWeight::kF32;
  int rows = 1;  ///< of x: 1 to 8
  int members = 1;
  bool bias = false;
  bool norm = false;
  bool gated = false;
  Activation activation = Activation::kSilu;
  /// Units of the weight that are asked for before the first is used.
  int loads_ahead = 1;
  /// kF16Blocks: rows of the weight that an invocation sums, 16 apart, which share its reads of x.
  int thread_rows = 1;
  int invocations = 256;  ///< of a workgroup, a power of two

  auto operator<=>(const MatvecKernel&) const = default;
  /// Columns of y that a workgroup computes.
  int group_rows() const { return weight == MatvecWeight::kF16Blocks ? 16 * thread_rows : 8; }
};

inline constexpr int kMatvecMembers = 3;

/// Offsets and strides: x and the norm's weight in vec4s; y and bias in elements; the weight in
/// units of 8 elements. kF16Blocks: w_stride is the number of column blocks.
struct MatvecMember {
  uint32_t n, first_group;  ///< the workgroups before its own
  uint32_t w_offset, w_stride;
  uint32_t x_offset, y_offset, bias_offset;
  float alpha;
};

/// kNF4: `origin` is the index of the binding's first element in the whole weight (a multiple of
/// 8), w_offset that of the first row after it.
struct MatvecParams {
  MatvecMember members[kMatvecMembers];
  uint32_t units, ldx, ldy, accumulate;
  uint32_t groups, origin, norm_offset;
  float absmax_offset;
  float eps, norm_add, inverse_columns;
  uint32_t unused;
};
static_assert(sizeof(MatvecMember) == 32 && sizeof(MatvecParams) == 144);

/// Bindings: x, [the norm's weight], [a bias a member], y, then a weight a member (kNF4, one
/// member: codes, absmax codes, absmax scales).
const gpu::KernelSpec& matvec_kernel_spec(const MatvecKernel& kernel);

}  // namespace wgrad::ops
