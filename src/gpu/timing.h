#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/core.h"
#include "gpu/readback.h"

namespace wgrad::gpu {

/// Times of passes, by a timestamp at both ends of each; of dispatches where each gets a pass of
/// its own.
class Timing {
 public:
  /// Dispatches between two submits; the query set has two timestamps for each.
  explicit Timing(uint32_t dispatches_per_submit) : capacity_(dispatches_per_submit) {}

  bool active() const { return active_; }
  bool each_dispatch() const { return active_ && timed_ == Timed::kDispatches; }
  void start(Core& core, Timed timed);
  /// The next pass's timestamps; `kernel` is its first.
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
  Timed timed_ = Timed::kDispatches;
  wgpu::QuerySet queries_;
  InternalBuffer resolved_;
  std::vector<std::string> kernels_;  ///< of the recording
  std::vector<Batch> batches_;        ///< submitted
};

}  // namespace wgrad::gpu
