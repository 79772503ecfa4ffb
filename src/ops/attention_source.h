#pragma once

#include <cstdint>

#include "gpu/device.h"
#include "ops/attention_matrix_source.h"

namespace wgrad::ops {

/// Mirrors Params of kernels/lib_attention_common.wgsl.
struct AttentionParams {
  uint32_t queries, keys, query_offset, window;
  uint32_t heads, kv_heads, groups, first_token;
  uint32_t origin;
  float scale, scale_log2e;
  uint32_t splits, one;
};
static_assert(sizeof(AttentionParams) == 52);

/// The kernels that work on any device, in f32.
enum class AttentionKernel : uint8_t { kForward, kDecode, kCombine, kStatistics, kGradQ, kGradKv };

/// The kernel for heads of head_dim (1 to 256) elements: a file of src/kernels behind the
/// constants, tensor accessors and shared parts that it needs.
gpu::KernelSpec attention_kernel(AttentionKernel kernel, int64_t head_dim);

/// Queries (keys in kGradKv) that one workgroup of a tiled kernel covers.
int64_t attention_tile_rows(AttentionKernel kernel, int64_t head_dim);

/// The kernels on f16 subgroup matrices, for heads of up to 128 elements.
const gpu::KernelSpec& attention_matrix_kernel(AttentionMatrixKernel kernel, int64_t head_dim);

/// The kernels that make their operands (kernels/attention_pack.wgsl).
enum class AttentionPackKernel : uint8_t { kNorms, kFactor, kPack };
gpu::KernelSpec attention_pack_kernel(AttentionPackKernel kernel, int64_t head_dim);

/// Keys that one workgroup of kDecode covers.
inline constexpr int64_t kDecodeKeys = 256;

}  // namespace wgrad::ops
