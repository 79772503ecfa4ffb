#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/options.h"
#include "wgrad/train.h"

namespace wgrad::train::testing {

namespace fs = std::filesystem;

inline fs::path models_folder() { return fs::path(WGRAD_TEST_DATA) / "models"; }
inline fs::path run_folder(const std::string& name) { return models_folder() / "runs" / name; }

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::vector<nlohmann::json> read_lines(const fs::path& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

/// A folder that is empty at first and removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "wgrad-train-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Remembers what a run reported.
class Record : public TrainObserver {
 public:
  void on_plan(const TrainPlan& p) override { plan = p; }
  void on_step(const StepMetrics& m) override { steps.push_back(m); }
  void on_eval(const EvalMetrics& m) override { evals.push_back(m); }
  void on_checkpoint(const std::string& folder) override { checkpoints.push_back(folder); }
  void on_warning(const std::string& text) override { warnings.push_back(text); }

  TrainPlan plan;
  std::vector<StepMetrics> steps;
  std::vector<EvalMetrics> evals;
  std::vector<std::string> checkpoints, warnings;
};

/// Options of a short run on the CPU over the rows of a golden run. Models of a few thousand
/// weights are faster on one thread.
inline TrainOptions tiny_options(const std::string& model, const std::string& rows,
                                 const fs::path& out) {
  omp_set_num_threads(1);
  TrainOptions o;
  o.model = (models_folder() / model).string();
  o.data = (run_folder(rows) / "train.jsonl").string();
  o.out = out.string();
  o.device = "cpu";
  o.rank = 4;
  o.alpha = 8;
  o.lr = 2e-3;
  o.shuffle = false;
  return o;
}

/// The same, with rows that the test writes.
inline TrainOptions toy_options(const TemporaryFolder& folder, const std::string& jsonl,
                                const std::string& out = "out") {
  const fs::path data = folder.path() / "train.jsonl";
  write_file(data, jsonl);
  TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / out);
  o.data = data.string();
  return o;
}

/// Full fine-tuning takes no option of an adapter.
inline void train_fully(TrainOptions& o) {
  const TrainOptions standard;
  o.method = Method::kFull;
  o.rank = standard.rank;
  o.alpha = standard.alpha;
}

template <class Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return input_error("none", "none");
}

}  // namespace wgrad::train::testing
