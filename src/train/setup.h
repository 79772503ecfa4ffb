#pragma once

#include <memory>
#include <optional>

#include "data/batches.h"
#include "data/dataset.h"
#include "io/checkpoint_source.h"
#include "model/config.h"
#include "train/device_choice.h"
#include "train/schedule.h"
#include "train/trainer.h"
#include "wgrad/train.h"

namespace wgrad::train {

/// What a run needs before it opens its device: options checked, data read, steps counted.
struct RunSetup {
  TrainOptions options;  ///< as used
  DeviceChoice device;
  ComputeType compute = ComputeType::kF32;
  model::ModelConfig config;
  std::shared_ptr<const io::TensorSource> source;
  data::Dataset train;
  std::optional<data::Dataset> valid;
  std::unique_ptr<data::BatchOrder> order;
  int64_t total_steps = 0;
  int64_t longest_row = 0;
  LearningRate learning_rate;

  std::vector<MicroBatch> micro_batches(int64_t step) const;
  /// The rows whose micro-batch takes the most memory.
  MicroBatch largest_micro_batch() const;
  int64_t eval_batch_tokens() const;
};

RunSetup prepare(const TrainOptions& options, TrainObserver& observer);

}  // namespace wgrad::train
