#pragma once

#include <compare>
#include <cstdint>

#include "gpu/device.h"
#include "ops/nf4_source.h"

namespace wgrad::ops {

/// y[i, row] = sum_k x[i, k] W[row, k] (+ bias[row]) (+ y[i, row]) for up to four rows of x and an
/// NF4 weight whose rows are whole blocks of 64, its codes' values rounded to f16. Teams of 32
/// invocations read the weight in memory order, 16 bytes each of several rows at a time; `teams`
/// of the workgroup's eight share rows and cut the reduction.
struct Nf4MatvecKernel {
  int rows = 1;     ///< of x: 1 to 4
  int teams = 4;    ///< 1, 2, 4 or 8
  int copies = 32;  ///< of the table of pairs: 16 or 32
  /// The four words of a piece are written out, not a loop.
  bool unrolled = true;

  auto operator<=>(const Nf4MatvecKernel&) const = default;
  /// Rows of the weight that a team reads together.
  int team_rows() const { return rows <= 2 ? 8 : 4; }
  int group_rows() const { return 8 / teams * team_rows(); }
  /// Workgroup memory; partial sums take the table's place.
  int bytes() const { return nf4_pair_bytes(copies); }
};

/// Offsets and strides: x in vec4s; y and bias in elements.
struct Nf4MatvecParams {
  uint32_t n, units, ldx, ldy;  ///< units of 32 elements of a row
  uint32_t x_offset, y_offset, bias_offset;
  uint32_t accumulate, has_bias;
  float absmax_offset;
  uint32_t one;  ///< 1: a factor of loop bounds that compilers then do not unroll
  uint32_t unused;
};
static_assert(sizeof(Nf4MatvecParams) == 48);

/// Bindings: x, bias, y, codes, absmax codes, absmax scales.
const gpu::KernelSpec& nf4_matvec_kernel(const Nf4MatvecKernel& kernel);

}  // namespace wgrad::ops
