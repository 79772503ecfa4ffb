#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "gpu/core.h"
#include "gpu/device.h"
#include "gpu/pipeline_cache.h"
#include "gpu/readback.h"
#include "gpu/staging.h"
#include "gpu/timing.h"

namespace wgrad::gpu {

/// Dispatches that are recorded before they are handed over by themselves: few after the host has
/// waited, so that the device starts soon, then twice as many each time.
inline constexpr uint32_t kFirstRecorded = 32, kMaxRecorded = 256;
/// The room of one dispatch in the uniform buffer: WebGPU's alignment of dynamic offsets.
inline constexpr uint32_t kParameterStride = 256;

/// Everything of a device. Owns the recording: an encoder with at most one open compute pass.
struct Device::Impl {
  explicit Impl(std::shared_ptr<Core> shared);

  std::shared_ptr<Core> core;
  PipelineCache pipelines;
  Staging staging;
  Readback readback;
  Timing timing{kMaxRecorded};

  /// The parameters of the dispatches recorded since the last submit, a stride each; written to
  /// the uniform buffer in one piece, before the submit in the queue's order.
  InternalBuffer parameters;
  std::array<std::byte, kMaxRecorded * kParameterStride> parameter_data;
  uint32_t parameter_bytes = 0;

  wgpu::CommandEncoder encoder;
  wgpu::ComputePassEncoder pass;
  const Pipeline* pass_pipeline = nullptr;  ///< the one set in `pass`
  uint32_t recorded = 0;                    ///< dispatches since the last submit
  uint32_t submit_at = kFirstRecorded;      ///< so many are handed over
  uint64_t dispatches = 0, submits = 0;

  wgpu::CommandEncoder& open_encoder();  ///< outside any pass
  wgpu::ComputePassEncoder& open_pass(const Pipeline& next);
  void end_pass();
  uint32_t add_parameters(std::span<const std::byte> bytes);
  /// Ends the recording and submits it with what must follow: time stamps, staging.
  void submit();
  /// Copies a range (its size rounded up to 4) to the host's memory and submits.
  uint64_t start_read(const Binding& from);
};

/// Throws unless the range lies in its buffer, at offsets that are multiples of `alignment`.
void check_range(const char* where, const Binding& range, uint64_t alignment);

}  // namespace wgrad::gpu
