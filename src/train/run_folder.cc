#include "train/run_folder.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <vector>

#include "io/json.h"

namespace wgrad::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostYamlBytes = size_t{1} << 20;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

/// Names that a run writes besides its results: a folder that has one of them holds a run.
bool is_of_run(const std::string& name) {
  return name == "run.yaml" || name == "run.json" || name == "metrics.jsonl" ||
         name == "samples.jsonl" || name == "tensorboard" || name == "checkpoints";
}

/// Weights, their configuration and a report: what a run leaves behind.
bool is_result(const std::string& name) {
  return name.starts_with("adapter_") || name == "config.json" ||
         name.starts_with("model.safetensors") ||
         (name.starts_with("model-") && name.ends_with(".safetensors")) || name == "report.html";
}

template <typename Wanted>
std::optional<std::string> find_name(const fs::path& folder, const Wanted& wanted) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (wanted(name)) return name;
  }
  return std::nullopt;
}

void refuse_folder_of(const char* option, const std::string& path, const std::string& out) {
  if (path.empty() || !same_path(path, out)) return;
  throw input_error(out, fmt::format("is the --{} of this run too", option),
                    "a run writes into a folder of its own", "give another --out");
}

/// The settings of a run.yaml as a checkpoint has them; nothing where it cannot be read.
std::optional<RunState> settings_of(const fs::path& yaml, const RunState& now) {
  try {
    const YAML::Node root = YAML::Load(io::read_text_file(yaml, kMostYamlBytes));
    if (!root.IsMap()) return std::nullopt;
    RunState saved = now;
    saved.settings.clear();
    for (const auto& entry : root) {
      saved.settings.emplace_back(entry.first.as<std::string>(), entry.second.as<std::string>());
    }
    return saved;
  } catch (const YAML::Exception&) {
    return std::nullopt;
  }
}

/// Without a whole checkpoint a run begins at step 0: only where that writes over nothing but the
/// first lines of the same run.
void check_begins_again(const fs::path& out, const RunState& now) {
  const char* const action = "give another --out, or empty this folder to begin again";
  if (const std::optional<std::string> name = find_name(out, is_result)) {
    throw input_error(out.string(), fmt::format("holds {} but no whole checkpoint", *name),
                      "--resume writes over no result", action);
  }
  std::error_code error;
  const fs::path yaml = out / "run.yaml";
  if (is_there(yaml)) {
    const std::optional<RunState> saved = settings_of(yaml, now);
    if (!saved) {
      throw input_error(yaml.string(), "is not the run.yaml of a run", {}, action);
    }
    check_same_run(*saved, now, yaml);
  } else if (fs::file_size(out / "metrics.jsonl", error) > 0 && !error) {
    throw input_error(out.string(), "holds metrics.jsonl but no run.yaml and no whole checkpoint",
                      "--resume goes on with a run of its own", action);
  }
}

}  // namespace

void check_folder(const TrainOptions& options) {
  const fs::path out = options.out;
  std::error_code error;
  if (fs::exists(out, error) && !fs::is_directory(out, error)) {
    throw input_error(out.string(), "is a file", "expected a folder", "give another --out");
  }
  refuse_folder_of("model", options.model, options.out);
  refuse_folder_of("init-adapter", options.init_adapter, options.out);
  if (options.resume) return;
  const auto of_run = [](const std::string& name) { return is_of_run(name) || is_result(name); };
  if (const std::optional<std::string> name = find_name(out, of_run)) {
    throw input_error(out.string(), fmt::format("holds {} already", *name),
                      "a run writes into a folder of its own",
                      "give another --out, or --resume to go on with that run");
  }
}

void make_folder(const fs::path& out) {
  std::error_code error;
  fs::create_directories(out, error);
  if (error) {
    throw runtime_failure(out.string(), "could not be made: " + error.message(), {},
                          "give an --out that you may write to");
  }
}

std::optional<fs::path> checkpoint_to_resume(const fs::path& out, const RunState& now,
                                             const std::function<void(const std::string&)>& warn) {
  std::vector<std::string> rejected;
  std::optional<fs::path> checkpoint = newest_checkpoint(out, rejected);
  for (const std::string& fault : rejected) warn("checkpoint passed over: " + fault);
  if (checkpoint) {
    check_same_run(read_run_state(*checkpoint), now, *checkpoint);
    return checkpoint;
  }
  check_begins_again(out, now);
  warn(fmt::format("{}: no checkpoint to resume from; starting at step 0", out.string()));
  return std::nullopt;
}

}  // namespace wgrad::train
