#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "gpu/device.h"
#include "ops/matmul.h"

namespace wgrad::ops {

/// How a tile kernel reads its operands and writes C.
enum class TileAccess : uint8_t {
  kVec4,    ///< 16-byte accesses; offsets, row lengths and strides are multiples of 4
  kHalf4,   ///< the same, with B in f16
  kScalar,  ///< guarded single elements; any shape, slower
};

/// The product in f32 arithmetic, core WebGPU only: each workgroup computes bm x bn elements, each
/// invocation tm x tn (multiples of 4), the reduction in slices of 16 through workgroup memory with
/// the next slice waiting in registers. Equal to cpu::matmul.
struct TileKernel {
  MatmulOp op = MatmulOp::kNT;
  int bm = 128, bn = 128, tm = 8, tn = 8;
  /// Skew of the rows in workgroup memory, in vec4; 1 is faster where 16896 bytes are allowed.
  int pad = 0;
  TileAccess access = TileAccess::kVec4;
  bool guard = false;   ///< the last tiles are not full (always so in kScalar)
  bool tail_k = false;  ///< the reduction is not a multiple of 16 (always so in kScalar)
  /// Steps of the reduction written out one after the other, a divisor of 16.
  int unroll = 16;
  bool store_loop = false;  ///< C is stored in a loop, which is shorter to compile

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
  uint32_t flags;  ///< kTileAccumulate, kTileBias
};
static_assert(sizeof(TileParams) == 64);
inline constexpr uint32_t kTileAccumulate = 1, kTileBias = 2;

/// Bindings: A, B, bias f32 [n] (any f32 tensor without kTileBias), C.
std::string tile_source(const TileKernel& kernel);
/// The specification with the text generated once for each kernel.
const gpu::KernelSpec& tile_kernel_spec(const TileKernel& kernel);

}  // namespace wgrad::ops
