#include "train/report_data.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace wgrad::train {
namespace {

double number(const nlohmann::json& line, const char* key) {
  const auto value = line.find(key);
  const bool is_there = value != line.end() && value->is_number();
  return is_there ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string text(const nlohmann::json& line, const char* key) {
  const auto value = line.find(key);
  return value != line.end() && value->is_string() ? value->get<std::string>() : std::string();
}

/// Hands on each line that is a JSON object with a step.
template <typename Take>
void for_each_line(std::string_view lines, const Take& take) {
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const auto line = nlohmann::json::parse(lines.substr(0, end), nullptr, false);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.is_object() && number(line, "step") >= 0) take(line);
  }
}

/// Keeps what there was where a line has no number.
void follow(double& value, double next) {
  if (next >= 0) value = next;
}

}  // namespace

ReportData parse_report_data(std::string_view metrics, std::string_view samples) {
  ReportData data;
  for_each_line(metrics, [&](const nlohmann::json& line) {
    const double step = number(line, "step");
    if (line.contains("eval_loss")) {
      data.evals.push_back({step, number(line, "eval_loss")});
      return;
    }
    data.steps.push_back({step, number(line, "loss"), number(line, "lr"), number(line, "grad_norm"),
                          number(line, "tokens_per_second"),
                          number(line, "peak_memory_bytes") / 1e9});
    follow(data.seconds, number(line, "seconds"));
    follow(data.tokens, number(line, "total_tokens"));
    data.memory = std::max(data.memory, data.steps.back().memory);
  });
  for_each_line(samples, [&](const nlohmann::json& line) {
    const std::string prompt = text(line, "prompt");
    auto found = std::find_if(data.prompts.begin(), data.prompts.end(),
                              [&](const ReportPrompt& p) { return p.prompt == prompt; });
    if (found == data.prompts.end()) found = data.prompts.insert(found, {prompt, {}});
    found->samples.push_back({number(line, "step"), text(line, "text")});
  });
  return data;
}

}  // namespace wgrad::train
