#pragma once

#include <cstdint>
#include <string>

#include "train/bench_times.h"
#include "train/device_choice.h"
#include "wgrad/train.h"

namespace wgrad::train {

struct GenerationBench {
  std::string shape = "smollm2-135m";
  int64_t prompt_tokens = 512;
  int64_t new_tokens = 64;
  /// With kLora an adapter stands on all linear layers, with kQlora also on 4-bit weights; with
  /// kFull there is none.
  Method method = Method::kLora;
  int64_t rank = 16;
  bool dora = false;
};

struct GenerationTimes {
  double prompt_seconds = 0;   ///< until the first token
  double seconds_a_token = 0;  ///< the median of the later ones
  int64_t bytes_a_token = 0;   ///< weights, adapter and cache that one token must read
  double gpu_seconds = 0;      ///< of one token: the sum of its dispatches, each alone
  double outside_gpu = 0;      ///< the part of a token in which the device ran no kernels
  int64_t dispatches = 0;      ///< of one token
  int64_t peak_bytes = 0;
  std::vector<KernelTime> kernels;  ///< of one token
};

/// Times greedy generation of one sequence by a model shape with random weights.
GenerationTimes bench_generation(const DeviceChoice& device, ComputeType compute,
                                 const GenerationBench& bench);

}  // namespace wgrad::train
