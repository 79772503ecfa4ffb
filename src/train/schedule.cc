#include "train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace wgrad::train {

double LearningRate::at(int64_t step) const {
  if (step < warmup_steps) {
    return base * static_cast<double>(step) /
           static_cast<double>(std::max<int64_t>(1, warmup_steps));
  }
  const double progress = static_cast<double>(step - warmup_steps) /
                          static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps));
  switch (schedule) {
    case Schedule::kCosine:
      return base * std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
    case Schedule::kLinear:
      return base * std::max(0.0, 1.0 - progress);
    case Schedule::kConstant:
      break;
  }
  return base;
}

LearningRate make_learning_rate(const TrainOptions& options, int64_t total_steps) {
  LearningRate rate;
  rate.base = options.lr.value_or(options.method == Method::kFull ? 2e-5 : 2e-4);
  rate.schedule = options.schedule;
  rate.total_steps = total_steps;
  const double by_ratio =
      total_steps == 1 ? 0 : std::ceil(options.warmup_ratio * static_cast<double>(total_steps));
  rate.warmup_steps = options.warmup_steps.value_or(static_cast<int64_t>(by_ratio));
  if (total_steps == 1 && rate.warmup_steps > 0) {
    throw input_error("--warmup-steps", fmt::format("{} in a run of 1 step", rate.warmup_steps),
                      "warm-up begins at a learning rate of 0: nothing would be trained",
                      "give --warmup-steps 0, or more steps");
  }
  return rate;
}

}  // namespace wgrad::train
