#include "train/plan_memory.h"

namespace wgrad::train {
namespace {

/// Steps that a plan goes through: those with the largest micro-batches.
constexpr int64_t kPlannedSteps = 24;

}  // namespace

PlannedMemory plan_memory(const RunSetup& setup, Recompute recompute) {
  std::unique_ptr<Context> ctx = plan_context(setup.device, setup.compute);
  Trainer trainer(*ctx, setup.options, setup.config, setup.source, recompute, setup.longest_row);
  const auto sample = [&] {
    if (setup.sampler) setup.sampler->take(*ctx, trainer.model(), trainer.adapter(), 0);
  };
  sample();
  for (int64_t step : setup.largest_steps(kPlannedSteps)) {
    trainer.step(setup.micro_batches(step), step, 0.0, 0);
  }
  if (setup.valid) trainer.evaluate(setup.valid->rows, setup.eval_batch_tokens());
  sample();
  return {ctx->peak_bytes(), trainer.parameters().count(), ctx->bytes_by_label(),
          ctx->planned_kernels()};
}

}  // namespace wgrad::train
