#pragma once

#include <cstdint>

#include "wgrad/train.h"

namespace wgrad::train {

/// The learning rate of step `step` (0-based) as transformers' schedulers give it: during warmup
/// base * step / warmup_steps, then a cosine or a line down to 0 at total_steps, or constant.
struct LearningRate {
  double base = 0;
  Schedule schedule = Schedule::kCosine;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;

  double at(int64_t step) const;
};

/// From the options: the default rate of the method, and warmup_ratio rounded up to whole steps,
/// none in a run of one step. Throws where the only step would have a rate of 0.
LearningRate make_learning_rate(const TrainOptions& options, int64_t total_steps);

}  // namespace wgrad::train
