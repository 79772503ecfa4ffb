#include "train/metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace wgrad::train {
namespace {

/// JSON has no word for infinity: null stands for what is not finite.
nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

}  // namespace

void MetricsFile::write(const StepMetrics& m) {
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
  file_.line(json.dump());
}

void MetricsFile::write(const EvalMetrics& m) {
  nlohmann::ordered_json json;
  json["step"] = m.step;
  json["eval_loss"] = number(m.loss);
  json["eval_tokens"] = m.tokens;
  file_.line(json.dump());
}

void MetricsFile::keep_first(uint64_t bytes) {
  if (bytes < file_.size()) file_.truncate(bytes);
}

}  // namespace wgrad::train
