// SmolLM3: Llama without the rotation in every fourth layer.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

std::vector<int> ropes_of_layers(ConfigReader& reader, int64_t layers) {
  constexpr int64_t kMost = 4096;
  const int64_t interval = reader.size("no_rope_layer_interval", kMost);
  std::vector<int> ropes;
  const nlohmann::json* list = reader.find("no_rope_layers");
  if (list == nullptr) {
    for (int64_t i = 0; i < layers; ++i) ropes.push_back((i + 1) % interval != 0 ? 0 : kNoRope);
    return ropes;
  }
  const std::string expected = fmt::format("a list of at least {} numbers 0 or 1", layers);
  if (!list->is_array() || list->size() < static_cast<size_t>(layers)) {
    throw input_error(reader.where(), "no_rope_layers is " + brief(*list), expected);
  }
  for (int64_t i = 0; i < layers; ++i) {
    const nlohmann::json& rotates = (*list)[static_cast<size_t>(i)];
    if (rotates != 0 && rotates != 1) {
      throw input_error(reader.where(), "no_rope_layers has " + brief(rotates), expected);
    }
    ropes.push_back(rotates == 1 ? 0 : kNoRope);
  }
  return ropes;
}

}  // namespace

void configure_smollm3(ConfigReader& reader, ModelConfig& config) {
  constexpr int64_t kMostWindow = int64_t{1} << 30;
  const bool attention_bias = reader.flag("attention_bias", false);
  config.qkv_bias = attention_bias;
  config.output_bias = attention_bias;
  config.mlp_bias = reader.flag("mlp_bias", false);
  config.layer_ropes = ropes_of_layers(reader, config.layers);
  const bool windows = reader.flag("use_sliding_window", false) && reader.has("sliding_window");
  const int64_t window = windows ? reader.size("sliding_window", kMostWindow) : 0;
  if (const nlohmann::json* types = reader.find("layer_types")) {
    config.windows = windows_from_types(reader, *types, config.layers, window);
  } else {
    for (const int rope : config.layer_ropes) {
      config.windows.push_back(rope == kNoRope ? window : 0);
    }
  }
  reader.ignore({"sliding_window", "max_window_layers", "pretraining_tp"});
}

}  // namespace wgrad::model
