#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace wgrad::train {

/// A logged step; NaN where metrics.jsonl has no number.
struct ReportStep {
  double step = 0, loss = 0, lr = 0, grad_norm = 0, tokens_per_second = 0, memory = 0;
};

struct ReportEval {
  double step = 0, loss = 0;
};

struct ReportSample {
  double step = 0;
  std::string text;
};

/// The samples of one prompt, in the order of their steps.
struct ReportPrompt {
  std::string prompt;
  std::vector<ReportSample> samples;
};

/// metrics.jsonl and samples.jsonl, read leniently: a report is made of what there is.
struct ReportData {
  std::vector<ReportStep> steps;
  std::vector<ReportEval> evals;
  std::vector<ReportPrompt> prompts;
  double seconds = 0, tokens = 0, memory = 0;  ///< so far, and the most
};

/// JSON that may be of any form; null where it is none or nested too deeply.
nlohmann::json read_json(std::string_view text);

ReportData parse_report_data(std::string_view metrics, std::string_view samples);

/// At most `most` entries, evenly spaced, the first and the last among them.
template <typename T>
std::vector<T> thinned(const std::vector<T>& all, size_t most) {
  if (all.size() <= most) return all;
  std::vector<T> kept;
  for (size_t i = 0; i < most; ++i) kept.push_back(all[i * (all.size() - 1) / (most - 1)]);
  return kept;
}

}  // namespace wgrad::train
