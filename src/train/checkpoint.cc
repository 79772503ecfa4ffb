#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "io/atomic_file.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace wgrad::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceElements = int64_t{4} << 20;
constexpr std::string_view kStateFile = "state.safetensors";

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

std::vector<NamedTensor> state_tensors(const Trainer& trainer) {
  std::vector<NamedTensor> tensors;
  const auto& groups = trainer.parameters().groups();
  const auto& moments = trainer.optimizer().moments();
  for (size_t i = 0; i < groups.size(); ++i) {
    tensors.push_back({fmt::format("parameters.{}", i), groups[i].values});
    tensors.push_back({fmt::format("m.{}", i), moments[i].m});
    tensors.push_back({fmt::format("v.{}", i), moments[i].v});
  }
  return tensors;
}

/// A 64-bit checksum of the state's bytes in whole words (multiply and rotate, as xxHash does).
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) {
    for (size_t i = 0; i < bytes.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
      hash_ = (hash_ ^ word) * 0x9E3779B97F4A7C15ull;
      hash_ = (hash_ << 31) | (hash_ >> 33);
    }
  }
  std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  uint64_t hash_ = 0x243F6A8885A308D3ull;
};

void write_state(const fs::path& path, Trainer& trainer) {
  std::vector<io::TensorToWrite> out;
  Context& ctx = trainer.context();
  for (const NamedTensor& named : state_tensors(trainer)) {
    const Tensor tensor = named.tensor;
    out.push_back(
        {named.name, io::FileType::kF32, {tensor.size()}, [&ctx, tensor](const auto& sink) {
           for (int64_t at = 0; at < tensor.size(); at += kPieceElements) {
             const int64_t n = std::min(kPieceElements, tensor.size() - at);
             const std::vector<float> piece = ctx.read<float>(tensor.flat(at, n));
             sink(std::as_bytes(std::span(piece)));
           }
         }});
  }
  io::write_safetensors(path, std::move(out));
}

std::string checksum_of(const io::SafetensorsFile& file) {
  Checksum checksum;
  for (const io::TensorView& tensor : file.tensors()) checksum.add(tensor.bytes);
  return checksum.text();
}

int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with("step-") || name.size() < 6 || name.size() > 20) return -1;
  if (name.find_first_not_of("0123456789", 5) != std::string::npos) return -1;
  return std::stoll(name.substr(5));
}

int64_t count_in(const nlohmann::json& json, const char* field) {
  constexpr int64_t kMost = int64_t{1} << 62;
  const nlohmann::json& value = json.at(field);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(kMost)) {
    throw std::out_of_range(fmt::format("{} is no whole number from 0 to {}", field, kMost));
  }
  return value.get<int64_t>();
}

/// Newest first.
std::vector<fs::path> checkpoints_of(const fs::path& run) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", error)) {
    if (entry.is_directory() && step_of(entry.path()) >= 0) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return step_of(a) > step_of(b); });
  return found;
}

/// Empty where the checkpoint is whole, else what is wrong.
std::string fault_of(const fs::path& checkpoint) {
  try {
    const nlohmann::json json = io::read_json_file(checkpoint / "state.json");
    read_run_state(checkpoint);
    const auto file = io::SafetensorsFile::open(checkpoint / kStateFile);
    if (checksum_of(file) != json.at("checksum").get<std::string>()) {
      return fmt::format("{}: checksum does not match its content",
                         (checkpoint / kStateFile).string());
    }
    return {};
  } catch (const Error& error) {
    return error.what();
  } catch (const nlohmann::json::exception& error) {
    return fmt::format("{}: {}", (checkpoint / "state.json").string(), error.what());
  }
}

/// A path may be written in several ways.
bool same_setting(std::string_view name, const std::string& a, const std::string& b) {
  const bool is_path = name == "model" || name == "data" || name == "init-adapter";
  return is_path ? same_path(a, b) : a == b;
}

const std::string* find_setting(const Settings& settings, std::string_view name) {
  const auto found = std::find_if(settings.begin(), settings.end(),
                                  [&](const auto& setting) { return setting.first == name; });
  return found == settings.end() ? nullptr : &found->second;
}

/// What a newer wgrad has saved may change the numbers in a way that this one cannot follow.
void refuse_unknown_settings(const RunState& saved, const std::string& where) {
  const std::vector<std::string_view> known = option_names();
  for (const auto& [name, value] : saved.settings) {
    if (std::ranges::count(known, name) > 0) continue;
    throw input_error(where, fmt::format("the run was started with --{} \"{}\"", name, value),
                      "this version of wgrad has no such option",
                      "go on with the version of wgrad that began the run, or give another --out");
  }
}

}  // namespace

void save_checkpoint(const fs::path& run, const RunState& state, Trainer& trainer,
                     const std::string& base_model, int64_t keep) {
  const fs::path parent = run / "checkpoints";
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) {
    throw runtime_failure(parent.string(), "could not be made: " + error.message(), {},
                          "check the folder's permissions and the disk's free space");
  }
  io::remove_abandoned(parent);
  const fs::path target = parent / fmt::format("step-{:06}", state.step);
  io::AtomicFolder folder(target, io::IfExists::kReplace);
  write_state(folder.path() / kStateFile, trainer);
  if (trainer.adapter()) trainer.adapter()->save(trainer.context(), folder.path(), base_model);

  nlohmann::json json;
  json["step"] = state.step;
  json["updates"] = state.updates;
  json["total_tokens"] = state.total_tokens;
  json["seconds"] = state.seconds;
  json["loss"] = state.loss;  // JSON's null where it is not finite
  json["metrics_bytes"] = state.metrics_bytes;
  json["samples_bytes"] = state.samples_bytes;
  json["clock"] = state.clock;
  json["data_fingerprint"] = fmt::format("{:016x}", state.data_fingerprint);
  for (const auto& [name, value] : state.settings) json["settings"][name] = value;
  json["checksum"] = checksum_of(io::SafetensorsFile::open(folder.path() / kStateFile));
  io::write_file_atomically(folder.path() / "state.json", json.dump(2) + "\n");
  folder.commit();

  const std::vector<fs::path> all = checkpoints_of(run);
  for (size_t i = static_cast<size_t>(keep); i < all.size(); ++i) fs::remove_all(all[i], error);
}

std::optional<fs::path> newest_checkpoint(const fs::path& run, std::vector<std::string>& rejected) {
  for (const fs::path& checkpoint : checkpoints_of(run)) {
    std::string fault = fault_of(checkpoint);
    if (fault.empty()) return checkpoint;
    rejected.push_back(std::move(fault));
  }
  return std::nullopt;
}

RunState read_run_state(const fs::path& checkpoint) {
  const fs::path path = checkpoint / "state.json";
  const nlohmann::json json = io::read_json_file(path);
  RunState state;
  try {
    state.step = count_in(json, "step");
    state.updates = count_in(json, "updates");
    state.total_tokens = count_in(json, "total_tokens");
    state.seconds = json.at("seconds").get<double>();
    if (const auto loss = json.find("loss"); loss != json.end() && !loss->is_null()) {
      state.loss = loss->get<double>();
    }
    state.metrics_bytes = static_cast<uint64_t>(count_in(json, "metrics_bytes"));
    if (json.contains("samples_bytes")) {
      state.samples_bytes = static_cast<uint64_t>(count_in(json, "samples_bytes"));
    }
    state.clock = count_in(json, "clock");
    if (state.updates > state.step || state.step != step_of(checkpoint) || state.seconds < 0) {
      throw std::out_of_range("step, updates or seconds are not those of this checkpoint");
    }
    state.data_fingerprint =
        std::stoull(json.at("data_fingerprint").get<std::string>(), nullptr, 16);
    for (const auto& [name, value] : json.at("settings").items()) {
      state.settings.emplace_back(name, value.get<std::string>());
    }
  } catch (const std::exception& error) {
    throw input_error(path.string(), error.what(), "expected a checkpoint's state.json",
                      "remove this checkpoint's folder to use an earlier one");
  }
  return state;
}

std::optional<int64_t> saved_clock(const fs::path& run) {
  for (const fs::path& checkpoint : checkpoints_of(run)) {
    try {
      return read_run_state(checkpoint).clock;
    } catch (const Error&) {
      continue;  // newest_checkpoint() says why it is passed over
    }
  }
  return std::nullopt;
}

void restore_checkpoint(const fs::path& checkpoint, Trainer& trainer) {
  const fs::path path = checkpoint / kStateFile;
  const auto file = io::SafetensorsFile::open(path);
  for (const NamedTensor& named : state_tensors(trainer)) {
    const io::TensorView* saved = file.find(named.name);
    if (!saved || saved->bytes.size() != static_cast<size_t>(named.tensor.bytes())) {
      throw input_error(path.string(),
                        fmt::format("{} is {}", named.name, saved ? "of another size" : "missing"),
                        fmt::format("expected {}", named.tensor.describe()),
                        "the checkpoint belongs to another model or adapter");
    }
    trainer.context().upload(named.tensor, saved->bytes);
  }
}

bool same_path(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto resolve = [](const std::string& path) {
    std::error_code error;
    // A separator at the end names nothing more.
    const fs::path full = fs::weakly_canonical(path, error);
    return full.has_filename() ? full : full.parent_path();
  };
  if (a.empty() || b.empty()) return false;
  const fs::path first = resolve(a);
  return !first.empty() && first == resolve(b);
}

void check_same_run(const RunState& saved, const RunState& now, const fs::path& checkpoint) {
  const std::string where = fmt::format("--resume from {}", checkpoint.string());
  refuse_unknown_settings(saved, where);
  const auto standard = numeric_settings(TrainOptions());
  for (const auto& [name, value] : now.settings) {
    // A run begun before the option existed had what is now its default.
    const std::string* before = find_setting(saved.settings, name);
    if (before == nullptr) before = find_setting(standard, name);
    if (before != nullptr && same_setting(name, *before, value)) continue;
    throw input_error(where, fmt::format("--{} is \"{}\" now", name, value),
                      fmt::format("the run was started with \"{}\"", before ? *before : ""),
                      "give the same options (--config run.yaml of the run), or another --out");
  }
  if (saved.data_fingerprint != now.data_fingerprint) {
    throw input_error(where, "the training data has changed since", "expected the same rows",
                      "give the same --data, or start a run with another --out");
  }
}

}  // namespace wgrad::train
