#pragma once

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "io/record_file.h"
#include "wgrad/train.h"

namespace wgrad::train {

/// TensorBoard's event files of a run, in a folder of their own: scalars train/loss, train/lr,
/// train/grad_norm, train/tokens_per_second, train/peak_memory_gb and eval/loss. Each start of the
/// run writes a new file, made with its first event.
class TensorBoard {
 public:
  explicit TensorBoard(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void write(const StepMetrics& metrics);
  void write(const EvalMetrics& metrics);
  /// Drops from the earlier files what lies after a step, and a torn last event: a resumed run
  /// writes those steps again.
  void keep_until(int64_t step) const;

 private:
  using Scalar = std::pair<std::string_view, double>;
  void write(int64_t step, std::initializer_list<Scalar> scalars);

  std::filesystem::path folder_;
  std::optional<io::RecordFile> file_;
};

}  // namespace wgrad::train
