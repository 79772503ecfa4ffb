#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gpu/device.h"
#include "ops/attention_matrix_source.h"

namespace wgrad::ops {

/// Mirrors Params of kernels/lib_attention_common.wgsl.
struct AttentionParams {
  uint32_t queries, keys, query_offset, window;
  uint32_t heads, kv_heads, groups, first_token;
  uint32_t origin;
  float scale, scale_log2e;
  uint32_t splits, first_kv_head, kv_head_count, kept_tiles, one;
};
static_assert(sizeof(AttentionParams) == 64);

/// The kernels that work on any device, in f32.
enum class AttentionKernel : uint8_t { kForward, kDecode, kCombine, kStatistics, kGradQ, kGradKv };

/// The kernel for heads of head_dim (1 to 256) elements: a file of src/kernels behind the
/// constants, tensor accessors and shared parts that it needs. `soft_cap` as in AttentionShape.
gpu::KernelSpec attention_kernel(AttentionKernel kernel, int64_t head_dim, float soft_cap);

/// Queries (keys in kGradKv) that one workgroup of a tiled kernel covers.
int64_t attention_tile_rows(AttentionKernel kernel, int64_t head_dim);

/// The kernels on f16 subgroup matrices, for heads of up to 256 elements.
const gpu::KernelSpec& attention_matrix_kernel(AttentionMatrixKernel kernel, int64_t head_dim,
                                               float soft_cap);

/// What kernels over tensors of heads begin with: Cell, HEAD_DIM, UNITS and, for `rows` of a tile,
/// how its columns are spread over 256 invocations; and load_NAME(cell, unit). A tensor whose heads
/// are whole vectors is bound as vectors; any other as scalars, and the last vector of a head is
/// filled up with zeros.
std::string attention_constants(int64_t rows, int64_t head_dim);
std::string attention_load_function(std::string_view name, int64_t head_dim);

/// Keys that one workgroup of kDecode covers.
inline constexpr int64_t kDecodeKeys = 256;

}  // namespace wgrad::ops
