// Qwen2 and Qwen2.5: biases on q, k and v; sliding windows on the upper layers, if at all.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "wgrad/error.h"

namespace wgrad::model {

std::vector<int64_t> windows_from_types(const ConfigReader& reader, const nlohmann::json& types,
                                        int64_t layers, int64_t window) {
  const std::string where = reader.where() + ": layer_types";
  if (!types.is_array() || types.size() != static_cast<size_t>(layers)) {
    throw input_error(where, brief(types), fmt::format("a list of {} names", layers));
  }
  std::vector<int64_t> windows;
  for (const nlohmann::json& type : types) {
    if (type == "full_attention") {
      windows.push_back(0);
    } else if (type == "sliding_attention" && window > 0) {
      windows.push_back(window);
    } else {
      throw input_error(where, brief(type),
                        "\"full_attention\", or \"sliding_attention\" with a sliding_window");
    }
  }
  return windows;
}

std::vector<int64_t> layered_windows(ConfigReader& reader, int64_t layers) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const bool used = reader.flag("use_sliding_window", false);
  const bool none = !reader.has("sliding_window");
  const int64_t stated = none ? 0 : reader.size("sliding_window", kMost);
  const int64_t window = used ? stated : 0;
  const nlohmann::json* first = reader.find("max_window_layers");
  int64_t full_layers = 28;
  if (first != nullptr) {
    // 0 is allowed here: every layer has a window.
    if (!first->is_number_integer() || *first < 0 || *first > kMost) {
      throw input_error(reader.where(), "max_window_layers is " + brief(*first),
                        fmt::format("an integer from 0 to {}", kMost));
    }
    full_layers = first->get<int64_t>();
  }
  if (const nlohmann::json* types = reader.find("layer_types")) {
    return windows_from_types(reader, *types, layers, window);
  }
  std::vector<int64_t> windows(static_cast<size_t>(layers), 0);
  for (int64_t i = full_layers; i < layers; ++i) windows[static_cast<size_t>(i)] = window;
  return windows;
}

void configure_qwen2(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = true;
  config.windows = layered_windows(reader, config.layers);
  reader.must_be("use_mrope", false);
  reader.ignore({"attention_bias"});  // this family always has them, and only these
}

}  // namespace wgrad::model
