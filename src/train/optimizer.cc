#include "train/optimizer.h"

#include <cmath>
#include <limits>

namespace wgrad::train {

Optimizer::Optimizer(Context& ctx, const model::Parameters& parameters,
                     const OptimizerSettings& settings)
    : ctx_(ctx), parameters_(parameters), settings_(settings) {
  for (const model::ParameterGroup& group : parameters.groups()) {
    moments_.push_back({ctx.allocate_zeroed({group.size()}, DType::kF32, "optimizer/m"),
                        ctx.allocate_zeroed({group.size()}, DType::kF32, "optimizer/v")});
  }
  state_ = ctx.allocate_zeroed({4}, DType::kF32, "optimizer/state");
}

void Optimizer::step(double learning_rate, int64_t updates, const Tensor& loss_sum) {
  const std::vector<Tensor> gradients = parameters_.gradients();
  ops::gradient_norm(ctx_, gradients, loss_sum, static_cast<float>(settings_.max_grad_norm),
                     state_);
  const double t = static_cast<double>(updates + 1);
  ops::AdamWStep step;
  step.learning_rate = learning_rate;
  step.beta1 = settings_.beta1;
  step.beta2 = settings_.beta2;
  step.eps = settings_.eps;
  step.bias_correction1 = 1.0 - std::pow(settings_.beta1, t);
  step.bias_correction2 = 1.0 - std::pow(settings_.beta2, t);
  for (size_t i = 0; i < moments_.size(); ++i) {
    const model::ParameterGroup& group = parameters_.groups()[i];
    step.weight_decay = group.decay ? settings_.weight_decay : 0.0;
    ops::adamw_step(ctx_, step, state_, group.values, group.grads, moments_[i].m, moments_[i].v);
  }
}

Optimizer::Outcome Optimizer::outcome() {
  const std::vector<float> state = ctx_.read<float>(state_);
  const bool finite = ctx_.kind() == DeviceKind::kPlan || state[2] != 0.0f;
  // In place of a norm that is not finite the device leaves a number.
  return {finite ? state[0] : std::numeric_limits<float>::quiet_NaN(), state[3], finite};
}

}  // namespace wgrad::train
