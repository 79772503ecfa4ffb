#pragma once

#include <string>
#include <vector>

#include "train/bench_times.h"
#include "train/device_choice.h"
#include "wgrad/train.h"

namespace wgrad::train {

struct StepBench {
  std::string shape = "smollm2-135m";
  Method method = Method::kLora;
  int64_t rank = 16;
  bool dora = false;
  int64_t rows = 4, tokens = 512;
  int64_t steps = 5;  ///< timed, after two or more that warm up for a second
  Recompute recompute = Recompute::kNone;
};

struct StepTimes {
  double seconds = 0;  ///< a step by the host's clock: the median
  double tokens_per_second = 0;
  /// The part of a step in which the device ran no pass of kernels, by its own clock.
  double outside_gpu = 0;
  double gpu_seconds = 0;  ///< the sum of its dispatches, each alone; 0: the device has no clock
  double model_flops = 0;  ///< of the products with the model's weights
  int64_t dispatches = 0;
  int64_t peak_bytes = 0;
  double loss = 0;
  std::vector<KernelTime> kernels;  ///< of a step
};

/// Times a training step of a model shape with random weights and rows.
StepTimes bench_step(const DeviceChoice& device, ComputeType compute, const StepBench& bench);

/// The most memory that the step takes, found without running it.
int64_t plan_step_bytes(const DeviceChoice& device, ComputeType compute, const StepBench& bench);

}  // namespace wgrad::train
