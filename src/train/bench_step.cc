#include "train/bench_step.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "train/synthetic.h"
#include "train/trainer.h"

namespace wgrad::train {
namespace {

void add_kernel_times(Context& ctx, StepTimes& times) {
  std::map<std::string, double> by_kernel;
  for (const gpu::DispatchTime& time : ctx.device().take_times()) {
    by_kernel[time.kernel] += time.seconds;
    times.gpu_seconds += time.seconds;
  }
  times.kernels.assign(by_kernel.begin(), by_kernel.end());
  std::sort(times.kernels.begin(), times.kernels.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
}

}  // namespace

StepTimes bench_step(const DeviceChoice& device, ComputeType compute, const StepBench& bench) {
  const model::ModelConfig config = shape_config(bench.shape);
  const std::unique_ptr<Context> ctx = open_context(device, compute);
  TrainOptions options;
  options.method = bench.method;
  options.rank = bench.rank;
  Trainer trainer(*ctx, options, config, random_weights(config), bench.recompute, bench.tokens);
  const std::vector<data::Row> rows = random_rows(bench.rows, bench.tokens, config.vocab_size);
  MicroBatch batch;
  for (const data::Row& row : rows) batch.push_back(&row);

  int64_t updates = 0;
  auto step = [&] {
    const Trainer::Outcome outcome = trainer.step({&batch, 1}, updates, 1e-4, updates);
    ++updates;
    return outcome.loss;
  };
  StepTimes times;
  for (int i = 0; i < 2; ++i) times.loss = step();
  const bool on_gpu = ctx->kind() == DeviceKind::kGpu;
  const uint64_t dispatches_before = on_gpu ? ctx->device().statistics().dispatches : 0;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < bench.steps; ++i) step();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  times.seconds = elapsed.count() / static_cast<double>(bench.steps);
  const int64_t tokens = bench.rows * bench.tokens;
  times.tokens_per_second = static_cast<double>(tokens) / times.seconds;
  const double products = bench.method == Method::kFull ? 3.0 : 2.0;
  times.model_flops = 2.0 * static_cast<double>(config.parameters()) * static_cast<double>(tokens) *
                      (products + (bench.recompute == Recompute::kBlock ? 1.0 : 0.0));
  times.peak_bytes = ctx->peak_bytes();
  if (on_gpu) {
    times.dispatches =
        static_cast<int64_t>(ctx->device().statistics().dispatches - dispatches_before) /
        bench.steps;
    if (ctx->features().timestamps) {
      ctx->device().start_timing();
      step();
      add_kernel_times(*ctx, times);
    }
  }
  return times;
}

}  // namespace wgrad::train
