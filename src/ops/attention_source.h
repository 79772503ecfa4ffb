#pragma once

#include <cstdint>

#include "gpu/device.h"

namespace wgrad::ops {

/// The kernels that work on any device, in f32.
enum class AttentionKernel : uint8_t { kForward, kDecode, kCombine, kStatistics, kGradQ, kGradKv };

/// The kernel for heads of head_dim (1 to 256) elements: a file of src/kernels behind the
/// constants, tensor accessors and shared parts that it needs.
gpu::KernelSpec attention_kernel(AttentionKernel kernel, int64_t head_dim);

/// Queries (keys in kGradKv) that one workgroup of a tiled kernel covers.
int64_t attention_tile_rows(AttentionKernel kernel, int64_t head_dim);

/// Keys that one workgroup of kDecode covers.
inline constexpr int64_t kDecodeKeys = 256;

}  // namespace wgrad::ops
