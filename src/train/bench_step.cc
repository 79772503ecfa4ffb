#include "train/bench_step.h"

#include <algorithm>

#include "train/synthetic.h"
#include "train/trainer.h"

namespace wgrad::train {
namespace {

/// Devices raise their clocks within this time of work.
constexpr double kWarmSeconds = 1.0;
constexpr int kWarmSteps = 2;

/// A trainer of random weights and the rows of its step.
class SyntheticStep {
 public:
  SyntheticStep(Context& ctx, const model::ModelConfig& config, const StepBench& bench)
      : trainer_(ctx, options(bench), config, random_weights(config), bench.recompute,
                 bench.tokens),
        batch_(random_rows(bench.rows, bench.tokens, config.vocab_size)) {}

  double run() {
    const Trainer::Outcome outcome = trainer_.step({&batch_, 1}, updates_, 1e-4, updates_);
    ++updates_;
    return outcome.loss;
  }

 private:
  static TrainOptions options(const StepBench& bench) {
    TrainOptions options;
    options.method = bench.method;
    options.rank = bench.rank;
    options.dora = bench.dora;
    return options;
  }

  Trainer trainer_;
  MicroBatch batch_;
  int64_t updates_ = 0;
};

/// Warms up, then times each step alone: a step ends with its loss read.
void time_steps(SyntheticStep& step, int64_t count, StepTimes& times) {
  const BenchClock::time_point start = BenchClock::now();
  for (int i = 0; i < kWarmSteps || seconds_since(start) < kWarmSeconds; ++i) {
    times.loss = step.run();
  }
  std::vector<double> seconds(static_cast<size_t>(count));
  for (double& one : seconds) {
    const BenchClock::time_point begin = BenchClock::now();
    step.run();
    one = seconds_since(begin);
  }
  times.seconds = median(seconds);
}

void add_outside_share(Context& ctx, SyntheticStep& step, int64_t count, StepTimes& times) {
  ctx.device().start_timing(gpu::Timed::kPasses);
  const BenchClock::time_point begin = BenchClock::now();
  for (int64_t i = 0; i < count; ++i) step.run();
  const double elapsed = seconds_since(begin);
  times.outside_gpu = std::max(0.0, 1.0 - take_kernel_times(ctx).total / elapsed);
}

}  // namespace

StepTimes bench_step(const DeviceChoice& device, ComputeType compute, const StepBench& bench) {
  const model::ModelConfig config = shape_config(bench.shape);
  const std::unique_ptr<Context> ctx = open_context(device, compute);
  SyntheticStep step(*ctx, config, bench);
  StepTimes times;
  time_steps(step, bench.steps, times);
  const double tokens = static_cast<double>(bench.rows * bench.tokens);
  times.tokens_per_second = tokens / times.seconds;
  const double products = bench.method == Method::kFull ? 3.0 : 2.0;
  times.model_flops = 2.0 * static_cast<double>(config.parameters()) * tokens *
                      (products + (bench.recompute == Recompute::kBlock ? 1.0 : 0.0));
  times.peak_bytes = ctx->peak_bytes();
  if (ctx->kind() != DeviceKind::kGpu) return times;
  if (ctx->features().timestamps) add_outside_share(*ctx, step, bench.steps, times);
  const uint64_t dispatches_before = ctx->device().statistics().dispatches;
  if (ctx->features().timestamps) ctx->device().start_timing();
  step.run();
  times.dispatches =
      static_cast<int64_t>(ctx->device().statistics().dispatches - dispatches_before);
  if (ctx->features().timestamps) {
    KernelTimes kernels = take_kernel_times(*ctx);
    times.gpu_seconds = kernels.total;
    times.kernels = std::move(kernels.by_kernel);
  }
  return times;
}

int64_t plan_step_bytes(const DeviceChoice& device, ComputeType compute, const StepBench& bench) {
  const std::unique_ptr<Context> ctx = plan_context(device, compute);
  SyntheticStep(*ctx, shape_config(bench.shape), bench).run();
  return ctx->peak_bytes();
}

}  // namespace wgrad::train
