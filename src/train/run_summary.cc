#include "train/run_summary.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

namespace wgrad::train {
namespace {

constexpr int64_t kMostBins = 40;

/// The least of 1, 2, 5, 10, 20, ... that covers `longest` tokens in so many bins.
int64_t bin_width(int64_t longest) {
  int64_t width = 1;
  for (int64_t ten = 1;; ten *= 10) {
    for (int64_t step : {1, 2, 5}) {
      width = ten * step;
      if (width * kMostBins >= longest) return width;
    }
  }
}

/// Bin i counts the rows of more than i * width and at most (i + 1) * width tokens.
nlohmann::ordered_json histogram(const data::RowStore& rows, int64_t longest) {
  const int64_t width = bin_width(longest);
  std::vector<int64_t> counts(static_cast<size_t>((longest + width - 1) / width));
  for (const int64_t tokens : rows.lengths()) {
    const int64_t bin = std::max<int64_t>(tokens - 1, 0) / width;
    ++counts[static_cast<size_t>(bin)];
  }
  return {{"width", width}, {"rows", counts}};
}

nlohmann::ordered_json describe(const data::Dataset& dataset) {
  const data::Summary& s = dataset.summary;
  nlohmann::ordered_json json;
  json["path"] = dataset.name;
  json["rows"] = s.rows;
  json["tokens"] = s.tokens;
  json["counted_tokens"] = s.counted_tokens;
  json["longest"] = s.longest;
  json["cut"] = s.cut;
  json["skipped"] = s.nothing_left + s.bad;
  json["lengths"] = histogram(dataset.rows, s.longest);
  return json;
}

}  // namespace

std::string summary_json(const RunSetup& setup, const TrainPlan& plan) {
  nlohmann::ordered_json json;
  json["device"] = plan.device;
  json["method"] = plan.method;
  json["dtype"] = plan.dtype;
  json["recompute"] = plan.recompute;
  json["steps"] = plan.steps;
  json["parameters"] = plan.parameters;
  json["trainable_parameters"] = plan.trainable_parameters;
  json["planned_memory_bytes"] = plan.peak_bytes;
  json["data"] = describe(setup.train);
  if (setup.valid) json["eval_data"] = describe(*setup.valid);
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  return json.dump(1, ' ', false, replace) + "\n";
}

}  // namespace wgrad::train
