#pragma once

#include <filesystem>
#include <optional>

#include "io/atomic_file.h"
#include "train/checkpoint.h"
#include "train/tensorboard.h"
#include "wgrad/train.h"

namespace wgrad::train {

/// What a run leaves to read along the way: metrics.jsonl, one JSON object a line for each logged
/// step and each evaluation; samples.jsonl, one for each answered prompt; and where asked for
/// TensorBoard's event files. Owns the open files.
class RunLog {
 public:
  RunLog(const std::filesystem::path& folder, bool tensorboard);

  void write(const StepMetrics& metrics);
  void write(const EvalMetrics& metrics);
  void write(const Sample& sample);
  bool has_samples() const { return samples_ && samples_->size() > 0; }
  /// Notes in a checkpoint's state how much there is.
  void note(RunState& state) const;
  /// Drops what a run that is resumed from this state will write again.
  void keep_until(const RunState& state);

 private:
  std::filesystem::path folder_;
  io::AppendFile metrics_;
  std::optional<io::AppendFile> samples_;  ///< once there is a sample
  std::optional<TensorBoard> tensorboard_;
};

}  // namespace wgrad::train
