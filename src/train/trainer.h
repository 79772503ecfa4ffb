#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/row_store.h"
#include "io/checkpoint_source.h"
#include "model/adapter.h"
#include "model/decoder.h"
#include "model/model.h"
#include "ops/context.h"
#include "train/optimizer.h"
#include "train/row_batch.h"
#include "wgrad/train.h"

namespace wgrad::train {

/// A model, what is trained of it and the optimizer, on one context. The same object on a plan
/// context runs the same calls without computing, which gives a step's exact memory.
class Trainer {
 public:
  /// `recompute` must be decided (kNone or kBlock); `longest_row` bounds every row in tokens.
  Trainer(Context& ctx, const TrainOptions& options, const model::ModelConfig& config,
          std::shared_ptr<const io::TensorSource> source, Recompute recompute, int64_t longest_row);

  struct Outcome {
    double loss = 0;  ///< mean over the counted tokens
    double grad_norm = 0;
    bool finite = true;  ///< false: the step was skipped
    int64_t tokens = 0;
  };
  /// One optimizer step over all its micro-batches; `updates` counts the steps taken before it.
  Outcome step(std::span<const MicroBatch> micro_batches, int64_t step, double learning_rate,
               int64_t updates);

  struct Evaluation {
    double loss_sum = 0;
    int64_t tokens = 0;
    double mean() const { return tokens > 0 ? loss_sum / static_cast<double>(tokens) : 0.0; }
  };
  /// The loss over rows, at most `batch_tokens` at a time (one row at least).
  Evaluation evaluate(const data::RowStore& rows, int64_t batch_tokens);

  const model::Parameters& parameters() const;
  const Optimizer& optimizer() const { return *optimizer_; }
  const model::Model& model() const { return model_; }
  const model::Adapter* adapter() const { return adapter_ ? &*adapter_ : nullptr; }
  Context& context() { return ctx_; }

 private:
  Context& ctx_;
  model::Model model_;
  std::optional<model::Adapter> adapter_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<Optimizer> optimizer_;
  Tensor loss_sum_;
};

}  // namespace wgrad::train
