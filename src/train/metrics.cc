#include "train/metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

namespace wgrad::train {
namespace {

/// JSON has no word for infinity: null stands for what is not finite.
nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

constexpr std::string_view kSamples = "samples.jsonl";

void keep_first(io::AppendFile& file, uint64_t bytes) {
  if (bytes < file.size()) file.truncate(bytes);
}

}  // namespace

RunLog::RunLog(const std::filesystem::path& folder, bool tensorboard)
    : folder_(folder), metrics_(folder / "metrics.jsonl") {
  if (std::filesystem::exists(folder / kSamples)) samples_.emplace(folder / kSamples);
  if (tensorboard) tensorboard_.emplace(folder / "tensorboard");
}

void RunLog::write(const StepMetrics& m) {
  nlohmann::ordered_json json;
  json["step"] = m.step;
  json["epoch"] = number(m.epoch);
  json["loss"] = number(m.loss);
  json["lr"] = number(m.lr);
  json["grad_norm"] = number(m.grad_norm);
  json["tokens"] = m.tokens;
  json["total_tokens"] = m.total_tokens;
  json["tokens_per_second"] = number(m.tokens_per_second);
  json["seconds"] = number(m.seconds);
  json["peak_memory_bytes"] = m.peak_memory_bytes;
  metrics_.line(json.dump());
  if (tensorboard_) tensorboard_->write(m);
}

void RunLog::write(const EvalMetrics& m) {
  nlohmann::ordered_json json;
  json["step"] = m.step;
  json["eval_loss"] = number(m.loss);
  json["eval_tokens"] = m.tokens;
  metrics_.line(json.dump());
  if (tensorboard_) tensorboard_->write(m);
}

void RunLog::write(const Sample& sample) {
  if (!samples_) samples_.emplace(folder_ / kSamples);
  nlohmann::ordered_json json;
  json["step"] = sample.step;
  json["prompt"] = sample.prompt;
  json["text"] = sample.text;
  samples_->line(json.dump());
}

void RunLog::note(RunState& state) const {
  state.metrics_bytes = metrics_.size();
  state.samples_bytes = samples_ ? samples_->size() : 0;
}

void RunLog::keep_until(const RunState& state) {
  keep_first(metrics_, state.metrics_bytes);
  if (samples_) keep_first(*samples_, state.samples_bytes);
  if (tensorboard_) tensorboard_->keep_until(state.step);
}

}  // namespace wgrad::train
