#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "data/batches.h"
#include "data/dataset.h"
#include "io/checkpoint_source.h"
#include "model/config.h"
#include "train/device_choice.h"
#include "train/samples.h"
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
  std::optional<Sampler> sampler;
  std::unique_ptr<data::BatchOrder> order;
  int64_t clock = 0;  ///< the date for chat templates: a resumed run has that of its first start
  int64_t total_steps = 0;
  int64_t longest_row = 0;
  int64_t cut_to = 0;  ///< by cut_rows()
  LearningRate learning_rate;
  std::vector<gpu::KernelSpec> kernels;  ///< of the planned steps, once there is a plan

  std::vector<MicroBatch> micro_batches(int64_t step) const;
  /// Tokens of a step's largest micro-batch.
  int64_t most_tokens_of(int64_t step) const;
  /// The steps with the largest micro-batches, `count` at most, in the run's order.
  std::vector<int64_t> largest_steps(int64_t count) const;
  int64_t eval_batch_tokens() const;

  /// The steps that the options make of the rows.
  void order_rows();
  /// As if --max-seq-len was so many tokens, but that a row which is left with nothing to count
  /// stays; 0: as it was read.
  void cut_rows(int64_t most);
};

/// For the device that the options name, or for the one given.
RunSetup prepare(const TrainOptions& options, TrainObserver& observer,
                 const std::optional<DeviceChoice>& device = {});

}  // namespace wgrad::train
