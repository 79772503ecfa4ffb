#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "gpu/device.h"
#include "ops/matmul.h"

namespace wgrad::ops {

/// How a tile kernel reads four neighbouring elements of an operand.
enum class TileLoad : uint8_t {
  kVec4,    ///< one 16-byte load; offset, row length and stride are multiples of 4
  kScalar,  ///< four guarded loads; any shape
  kHalf4,   ///< four f16 in 8 bytes; alignment as kVec4
};

/// The product in f32 arithmetic, core WebGPU only: each workgroup computes bm x bn elements, each
/// invocation tm x tn (multiples of 4), the reduction in slices of 16 through workgroup memory with
/// the next slice waiting in registers. Equal to cpu::matmul.
struct TileKernel {
  MatmulOp op = MatmulOp::kNT;
  int bm = 128, bn = 128, tm = 8, tn = 8;
  /// Skew of the rows in workgroup memory, in vec4; 1 is faster where 16896 bytes are allowed.
  int pad = 0;
  TileLoad a = TileLoad::kVec4, b = TileLoad::kVec4;
  bool store_vec4 = true;
  /// The last tile in this direction is not full.
  bool guard_m = false, guard_n = false;
  /// The reduction is not a multiple of 16.
  bool tail_k = false;
  bool bias = false;  ///< binding 2 is f32 [n], added to every row

  auto operator<=>(const TileKernel&) const = default;
  int invocations() const { return (bm / tm) * (bn / tn); }
  int workgroup_bytes() const { return 16 * (bm / 4 + bn / 4 + 2 * pad) * 16; }
};

/// The uniform of a tile kernel. Strides and offsets count elements. Workgroup w computes tile
/// w % (tiles_m * tiles_n) of part w / (tiles_m * tiles_n) of the reduction; part s covers
/// [s * k_part, (s + 1) * k_part) and writes c_part * s elements further on.
struct TileParams {
  uint32_t m, n, k, k_part;
  uint32_t lda, ldb, ldc, c_part;
  uint32_t a_offset, b_offset, c_offset, bias_offset;
  uint32_t tiles_m, tiles_n;
  float alpha;
  uint32_t accumulate;
};
static_assert(sizeof(TileParams) == 64);

std::string tile_source(const TileKernel& kernel);
/// The specification with the text generated once for each kernel.
const gpu::KernelSpec& tile_kernel_spec(const TileKernel& kernel);

}  // namespace wgrad::ops
