#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wgrad::train {

/// A run as one HTML page that needs nothing else: curves of the loss, the evaluations, the
/// learning rate, the gradient norm and the speed as SVG, and the settings. `metrics` is the text
/// of metrics.jsonl; lines that are not whole are left out.
std::string render_report(std::string_view title, std::string_view metrics,
                          const std::vector<std::pair<std::string, std::string>>& settings);

}  // namespace wgrad::train
