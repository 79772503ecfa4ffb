#pragma once

#include <vector>

#include "model/parameters.h"
#include "ops/context.h"
#include "ops/optimizer.h"

namespace wgrad::train {

struct OptimizerSettings {
  float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f;
  float weight_decay = 0.01f;  ///< of the groups that decay
  float max_grad_norm = 1.0f;  ///< 0: no clipping
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
  void step(float learning_rate, int64_t updates, const Tensor& loss_sum);

  struct Outcome {
    float grad_norm = 0;
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
