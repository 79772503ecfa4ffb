#pragma once

#include <filesystem>
#include <string>

#include "io/atomic_file.h"
#include "wgrad/train.h"

namespace wgrad::train {

/// metrics.jsonl: one JSON object a line, for each logged step and each evaluation.
class MetricsFile {
 public:
  explicit MetricsFile(const std::filesystem::path& path) : file_(path) {}

  void write(const StepMetrics& metrics);
  void write(const EvalMetrics& metrics);
  uint64_t bytes() const { return file_.size(); }
  /// Drops the lines that a resumed run will write again.
  void keep_first(uint64_t bytes);

 private:
  io::AppendFile file_;
};

}  // namespace wgrad::train
