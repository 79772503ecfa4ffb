#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "train/checkpoint.h"
#include "wgrad/train.h"

namespace wgrad::train {

/// Refuses an --out that is no folder, that the run reads from, or that holds another run.
void check_folder(const TrainOptions& options);

void make_folder(const std::filesystem::path& out);

/// The checkpoint that --resume goes on from, of a run with the same settings. None where the
/// folder has none that is whole and nothing in it is lost when the run begins again; refused where
/// something would be.
std::optional<std::filesystem::path> checkpoint_to_resume(
    const std::filesystem::path& out, const RunState& now,
    const std::function<void(const std::string&)>& warn);

}  // namespace wgrad::train
