#include "train/report_data.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "io/json.h"
#include "wgrad/error.h"

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
    const nlohmann::json line = read_json(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.is_object() && number(line, "step") >= 0) take(line);
  }
}

/// Keeps what there was where a line has no number.
void follow(double& value, double next) {
  if (next >= 0) value = next;
}

}  // namespace

nlohmann::json read_json(std::string_view text) {
  try {
    return io::parse_json(text, {.where = "report"});
  } catch (const Error&) {
    return nullptr;
  }
}

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
  std::unordered_map<std::string, size_t> places;
  for_each_line(samples, [&](const nlohmann::json& line) {
    const auto [place, added] = places.try_emplace(text(line, "prompt"), data.prompts.size());
    if (added) data.prompts.push_back({place->first, {}});
    data.prompts[place->second].samples.push_back({number(line, "step"), text(line, "text")});
  });
  return data;
}

}  // namespace wgrad::train
