#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/options.h"
#include "train/trainer.h"

namespace wgrad::train {

/// Where a run stands besides its tensors.
struct RunState {
  int64_t step = 0;     ///< steps done, skipped ones included
  int64_t updates = 0;  ///< steps that changed the weights
  int64_t total_tokens = 0;
  double seconds = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();  ///< of the last step
  uint64_t metrics_bytes = 0;                              ///< of metrics.jsonl at this step
  uint64_t samples_bytes = 0;                              ///< the same of samples.jsonl
  uint64_t data_fingerprint = 0;
  int64_t clock = 0;  ///< what a chat template's date was made from
  Settings settings;  ///< those that change the numbers
};

/// O/checkpoints/step-NNNNNN: state.json, state.safetensors (parameters and both moments, flat f32
/// a group) and, for an adapter, its PEFT files. Complete or absent: written under a temporary
/// name, flushed, renamed.
void save_checkpoint(const std::filesystem::path& run, const RunState& state, Trainer& trainer,
                     const std::string& base_model, int64_t keep);

/// The newest checkpoint that is whole; `rejected` names those passed over, with the reason.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& run,
                                                       std::vector<std::string>& rejected);
RunState read_run_state(const std::filesystem::path& checkpoint);
/// The clock of the run in this folder; none where no checkpoint of it can be read.
std::optional<int64_t> saved_clock(const std::filesystem::path& run);
/// Puts parameters and moments back, bit for bit.
void restore_checkpoint(const std::filesystem::path& checkpoint, Trainer& trainer);

/// Whether two paths lead to the same file or folder.
bool same_path(const std::string& a, const std::string& b);

/// An input error that names the first setting in which the two runs differ. A setting that the
/// saved run lacks counts as its default; one that is not known here is an error.
void check_same_run(const RunState& saved, const RunState& now,
                    const std::filesystem::path& checkpoint);

}  // namespace wgrad::train
