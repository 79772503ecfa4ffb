#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wgrad::train {

/// What a run's folder holds, as text.
struct ReportInput {
  std::string title;
  std::string metrics, samples;  ///< metrics.jsonl and samples.jsonl; torn lines are left out
  std::string run;               ///< run.json; may be empty
  std::vector<std::pair<std::string, std::string>> settings;
};

/// A run as one HTML page that needs nothing else and asks for nothing: charts of the loss, the
/// evaluations, the learning rate, the gradient norm, the speed, the memory and the rows' lengths,
/// drawn by uPlot; the samples, the settings, and the figures as text for where scripts are off.
/// Whatever the texts hold is shown as text.
std::string render_report(const ReportInput& input);

/// Writes RUN/report.html from what the folder of a run holds; an input error where it holds none.
void write_report(const std::filesystem::path& run);

}  // namespace wgrad::train
