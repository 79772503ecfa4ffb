#include "train/trainer.h"

#include <algorithm>
#include <utility>

#include "ops/elementwise.h"
#include "train/options.h"

namespace wgrad::train {
namespace {

model::LoadOptions load_options(const TrainOptions& options) {
  switch (options.method) {
    case Method::kFull:
      return {ops::WeightPrecision::kF32, true};
    case Method::kQlora:
      return {ops::WeightPrecision::kNF4, false};
    case Method::kLora:
      break;
  }
  return {ops::WeightPrecision::kCompute, false};
}

OptimizerSettings optimizer_settings(const TrainOptions& options) {
  return {options.beta1, options.beta2, options.eps, options.weight_decay, options.max_grad_norm};
}

}  // namespace

Trainer::Trainer(Context& ctx, const TrainOptions& options, const model::ModelConfig& config,
                 std::shared_ptr<const io::TensorSource> source, Recompute recompute,
                 int64_t longest_row)
    : ctx_(ctx), model_(model::load_model(ctx, config, std::move(source), load_options(options))) {
  if (options.method != Method::kFull) {
    adapter_ = options.init_adapter.empty()
                   ? model::Adapter::create(ctx, model_, lora_config(options), options.seed)
                   : model::Adapter::load(ctx, config, options.init_adapter, model_.source.get());
    // What the adapter replaces is not needed any more.
    if (adapter_->saves_modules()) {
      model_ = model::replaced(ctx, std::move(model_), adapter_->parameters());
    }
  }
  model::DecoderSettings settings;
  settings.recompute =
      recompute == Recompute::kBlock ? model::Recompute::kBlock : model::Recompute::kNone;
  settings.dropout_seed = options.seed;
  settings.max_positions = longest_row;
  decoder_ = std::make_unique<model::Decoder>(ctx, model_, adapter(), settings);
  optimizer_ = std::make_unique<Optimizer>(ctx, parameters(), optimizer_settings(options));
  loss_sum_ = ctx.allocate_zeroed({1}, DType::kF32, "loss/sum");
}

const model::Parameters& Trainer::parameters() const {
  return adapter_ ? adapter_->parameters() : model_.parameters;
}

Trainer::Outcome Trainer::step(std::span<const MicroBatch> micro_batches, int64_t step,
                               double learning_rate, int64_t updates) {
  Outcome outcome;
  int64_t counted = 0;
  for (const MicroBatch& rows : micro_batches) {
    for (const data::Row& row : rows) {
      counted += row.counted_tokens();
      outcome.tokens += row.tokens();
    }
  }
  parameters().zero_gradients(ctx_);
  ops::fill_zero(ctx_, loss_sum_);
  const float loss_scale = counted > 0 ? 1.0f / static_cast<float>(counted) : 0.0f;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const model::Batch batch = make_batch(ctx_, micro_batches[i], model_.config.vocab_size);
    decoder_->forward_backward(batch, loss_scale,
                               {static_cast<uint32_t>(step), static_cast<uint32_t>(i)}, loss_sum_);
  }
  optimizer_->step(learning_rate, updates, loss_sum_);
  const Optimizer::Outcome result = optimizer_->outcome();
  outcome.loss = result.loss_sum / static_cast<double>(std::max<int64_t>(counted, 1));
  outcome.grad_norm = result.grad_norm;
  outcome.finite = result.finite;
  return outcome;
}

Trainer::Evaluation Trainer::evaluate(const data::RowStore& rows, int64_t batch_tokens) {
  Evaluation total;
  int64_t next = 0;
  while (next < rows.size()) {
    MicroBatch batch;
    int64_t tokens = 0;
    do {
      batch.push_back(rows.row(next));
      tokens += batch.back().tokens();
      ++next;
    } while (next < rows.size() && tokens + rows.tokens(next) <= batch_tokens);
    const Tensor losses = decoder_->losses(make_batch(ctx_, batch, model_.config.vocab_size));
    if (!losses) continue;
    for (float loss : ctx_.read<float>(losses)) total.loss_sum += loss;
    total.tokens += losses.size();
  }
  return total;
}

}  // namespace wgrad::train
