#include "train/plan.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <vector>

#include "ops/matmul.h"
#include "train/options.h"
#include "train/plan_memory.h"
#include "train/ways_to_fit.h"

namespace wgrad::train {
namespace {

double flops_per_step(const RunSetup& setup, Recompute recompute) {
  // A product per weight and token forward, one for its input's gradient, one more for the
  // weight's own when all is trained, and the forward once more where blocks are recomputed.
  double products = setup.options.method == Method::kFull ? 3.0 : 2.0;
  if (recompute == Recompute::kBlock) products += 1.0;
  const double tokens = static_cast<double>(setup.train.summary.tokens) /
                        static_cast<double>(setup.order->steps_per_epoch());
  return 2.0 * products * static_cast<double>(setup.config.parameters()) * tokens;
}

TrainPlan make_plan(RunSetup& setup, const std::vector<DeviceChoice>& devices) {
  TrainOptions& options = setup.options;
  const int64_t available = available_memory(setup.device);
  auto fits = [&](const PlannedMemory& peak) { return available == 0 || peak.bytes <= available; };

  const bool decide = options.recompute == Recompute::kAuto;
  Recompute recompute = decide ? Recompute::kNone : options.recompute;
  PlannedMemory peak = plan_memory(setup, recompute);
  if (decide && !fits(peak)) {
    recompute = Recompute::kBlock;
    peak = plan_memory(setup, recompute);
  }
  if (!fits(peak)) {
    const std::string name = setup.device.name();
    throw input_error("memory", fmt::format("the run needs {}", gigabytes(peak.bytes)),
                      fmt::format("{} has {} free", name, gigabytes(available)),
                      ways_to_fit(setup, recompute, devices, available));
  }
  options.recompute = recompute;
  setup.kernels = std::move(peak.kernels);

  TrainPlan plan;
  plan.device = setup.device.name();
  plan.method = enum_name(options.method);
  plan.dtype = setup.compute == ComputeType::kF16 ? "f16" : "f32";
  plan.recompute = enum_name(recompute);
  plan.rows = setup.train.summary.rows;
  plan.steps = setup.total_steps;
  plan.tokens_per_epoch = setup.train.summary.tokens;
  plan.counted_tokens_per_epoch = setup.train.summary.counted_tokens;
  plan.longest_micro_batch = setup.most_tokens_of(setup.largest_steps(1).front());
  plan.parameters = setup.config.parameters();
  plan.trainable_parameters = peak.trainable;
  plan.peak_bytes = peak.bytes;
  plan.available_bytes = available;
  plan.flops_per_step = flops_per_step(setup, recompute);
  plan.bytes_by_label = peak.by_label;
  return plan;
}

}  // namespace

TrainPlan make_plan(RunSetup& setup) { return make_plan(setup, {setup.device}); }

TrainPlan plan_for_gpu(const TrainOptions& options, TrainObserver& observer, int64_t memory_bytes) {
  const std::vector<DeviceChoice> devices = usual_gpus(memory_bytes);
  RunSetup setup = prepare(options, observer, devices.front());
  TrainPlan worst;
  for (const DeviceChoice& device : devices) {
    setup.device = device;
    setup.compute = choose_compute(options.dtype, device);
    setup.options.recompute = options.recompute;
    TrainPlan plan = make_plan(setup, devices);
    if (plan.peak_bytes > worst.peak_bytes) worst = std::move(plan);
  }
  return worst;
}

double measure_matmul_rate(const DeviceChoice& device, ComputeType compute) {
  const std::unique_ptr<Context> ctx = open_context(device, compute);
  const bool slow = device.kind == DeviceKind::kGpu && device.adapter.is_software();
  const int64_t n = device.kind == DeviceKind::kCpu ? 512 : slow ? 128 : 2048;
  const Tensor a = ctx->allocate_zeroed({n, n}, DType::kF32, "measure/a");
  const Tensor b = ctx->allocate_zeroed({n, n}, DType::kF32, "measure/b");
  const Tensor c = ctx->allocate({n, n}, DType::kF32, "measure/c");
  auto run = [&] {
    if (compute == ComputeType::kF16) {
      ops::matmul_f16(*ctx, ops::MatmulOp::kNT, a, b, c);
    } else {
      ops::matmul(*ctx, ops::MatmulOp::kNT, a, b, c);
    }
  };
  run();
  ctx->wait();
  constexpr int kRuns = 10;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRuns; ++i) run();
  ctx->wait();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return kRuns * 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) /
         seconds.count();
}

}  // namespace wgrad::train
