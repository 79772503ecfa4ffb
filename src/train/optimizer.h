#pragma once

#include <vector>

#include "model/parameters.h"
#include "ops/context.h"
#include "ops/optimizer.h"

namespace wgrad::train {

struct OptimizerSettings {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.01;  ///< of the groups that decay
  double max_grad_norm = 1.0;  ///< 0: no clipping
};

/// AdamW over a run's parameters. Owns the moments; borrows context and parameters.
class Optimizer {
 public:
  Optimizer(Context& ctx, const model::Parameters& parameters, const OptimizerSettings& settings);

  struct Moments {
    Tensor m, v;  ///< flat, as the parameters' group
  };

  /// Records the norm, the clipping and the step; `updates` is the number of steps taken before.
  /// A step with a non-finite loss or gradient leaves everything as it is.
  void step(double learning_rate, int64_t updates, const Tensor& loss_sum);

  struct Outcome {
    float grad_norm = 0;  ///< NaN where the step is not finite
    float loss_sum = 0;
    bool finite = true;
  };
  /// Waits for the step and tells how it went.
  Outcome outcome();

  const std::vector<Moments>& moments() const { return moments_; }

 private:
  Context& ctx_;
  const model::Parameters& parameters_;
  OptimizerSettings settings_;
  std::vector<Moments> moments_;
  Tensor state_;
};

}  // namespace wgrad::train
