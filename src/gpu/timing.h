#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/core.h"
#include "gpu/readback.h"

namespace wgrad::gpu {

/// Times of single dispatches: each gets a pass of its own, with a timestamp at both ends.
class Timing {
 public:
  /// Dispatches between two submits; the query set has two timestamps for each.
  explicit Timing(uint32_t dispatches_per_submit) : capacity_(dispatches_per_submit) {}

  bool active() const { return active_; }
  void start(Core& core);
  /// The next pass's timestamps, for a dispatch of this name.
  wgpu::PassTimestampWrites next(const std::string& kernel);
  /// Ends a recording: the timestamps go to the host. The ticket to be submitted, or 0.
  uint64_t resolve(Core& core, Readback& readback, const wgpu::CommandEncoder& encoder);
  /// Ends timing; all was submitted.
  std::vector<DispatchTime> take(Core& core, Readback& readback);

 private:
  struct Batch {
    uint64_t ticket = 0;
    std::vector<std::string> kernels;
  };

  uint32_t capacity_;
  bool active_ = false;
  wgpu::QuerySet queries_;
  InternalBuffer resolved_;
  std::vector<std::string> kernels_;  ///< of the recording
  std::vector<Batch> batches_;        ///< submitted
};

}  // namespace wgrad::gpu
