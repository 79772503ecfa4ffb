#pragma once

#include <compare>
#include <cstdint>

#include "gpu/device.h"

namespace wgrad::ops {

/// The products of a low-rank adapter, each one pass over the wide operand at about the speed of
/// memory, in f32 and core WebGPU. Small: [m, rank]; wide: [m, width]; the factor is a matrix of
/// the adapter, [rank, width] or (`transposed`) [width, rank]. Widths are multiples of 4. All are
/// read and written by 16 bytes from the start of their bindings; sums have a fixed order.
enum class LoraStep : uint8_t {
  kProject,   ///< small = alpha wide factor^T; bindings: wide, factor, small
  kExpand,    ///< wide += alpha small factor; bindings: small, factor, wide
  kGradient,  ///< parts[part, rank, width] = wide^T small over a part of the rows, transposed;
              ///< bindings: wide, small, parts
  kSum,       ///< adds the sums of two such arrays to grad_b [n_b, rank] (the first, by alpha) and
              ///< grad_a [rank, n_a]; bindings: parts, grad_b, grad_a
};

struct LoraKernel {
  LoraStep step = LoraStep::kProject;
  int64_t rank = 16;        ///< 8, 16 or 32
  bool transposed = false;  ///< of the factor, in kProject and kExpand
  /// kProject: subgroups of 32 that take rows of their own; the other of the 8 share a reduction.
  int64_t row_groups = 1;
  /// kExpand, kGradient: rows that an invocation takes at a time.
  int64_t rows_at_once = 4;

  auto operator<=>(const LoraKernel&) const = default;
  /// Rows of a workgroup of kProject.
  int64_t project_rows() const { return 8 * row_groups; }
};

/// Columns of a workgroup of kExpand and kGradient, and its rows at a time.
inline constexpr int64_t kLoraColumns = 256, kLoraRows = 16;

/// Widths and places count vec4.
struct LoraParams {
  uint32_t m, width, rows_per_group, parts;
  float alpha;
  uint32_t unused[3];
};
static_assert(sizeof(LoraParams) == 32);

struct LoraSumParams {
  uint32_t width_b, width_a, parts_b, parts_a;
  uint32_t begin_a;  ///< of the second array
  float alpha;
  uint32_t unused[2];
};
static_assert(sizeof(LoraSumParams) == 32);

const gpu::KernelSpec& lora_kernel(const LoraKernel& kernel);

}  // namespace wgrad::ops
