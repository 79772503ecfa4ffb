#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "train/setup.h"

namespace wgrad::train {

/// What a run takes of its device's memory.
struct PlannedMemory {
  int64_t bytes = 0;  ///< at the peak
  int64_t trainable = 0;
  std::map<std::string, int64_t> by_label;
  std::vector<gpu::KernelSpec> kernels;
};

/// The calls of the run's largest steps, on a context that only counts.
PlannedMemory plan_memory(const RunSetup& setup, Recompute recompute);

}  // namespace wgrad::train
