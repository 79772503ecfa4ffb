#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/config_reader.h"

namespace wgrad::model {

/// A model family: how its config.json becomes a ModelConfig. To add one, write
/// families/<name>.cc with its `configure`, declare it below and enter it in registry.cc.
struct Family {
  std::string_view model_type;    ///< config.json's model_type
  std::string_view architecture;  ///< the one class of `architectures` that is a causal LM
  /// Reads the fields that only this family has and sets what follows from the family itself. The
  /// sizes that all share are already set; one rotary embedding in all layers and no windows are
  /// what it gets where it sets none.
  void (*configure)(ConfigReader& reader, ModelConfig& config);
  /// What holds for fields that config.json does not have: a JSON object. One that is null there
  /// stays null.
  std::string_view defaults;
};

std::span<const Family> families();

/// A class of several models one of which is a text model of a family, described by the text_config
/// of its config.json. The other parts are left alone.
struct Composite {
  std::string_view model_type;
  std::string_view architecture;
  std::string_view text_type;                     ///< the family's model_type
  std::string_view body;                          ///< ModelConfig::body
  std::span<const std::string_view> other_parts;  ///< ModelConfig::other_parts
};

std::span<const Composite> composites();

void configure_gemma2(ConfigReader& reader, ModelConfig& config);
void configure_gemma3(ConfigReader& reader, ModelConfig& config);
void configure_granite(ConfigReader& reader, ModelConfig& config);
void configure_llama(ConfigReader& reader, ModelConfig& config);
void configure_mistral(ConfigReader& reader, ModelConfig& config);
void configure_olmo2(ConfigReader& reader, ModelConfig& config);
void configure_phi3(ConfigReader& reader, ModelConfig& config);
void configure_qwen2(ConfigReader& reader, ModelConfig& config);
void configure_qwen3(ConfigReader& reader, ModelConfig& config);
void configure_smollm3(ConfigReader& reader, ModelConfig& config);

/// layer_types: `window` for each "sliding_attention", 0 for each "full_attention".
std::vector<int64_t> windows_from_types(const ConfigReader& reader, const nlohmann::json& types,
                                        int64_t layers, int64_t window);
/// The windows of models that give layer_types, or else use_sliding_window and max_window_layers.
std::vector<int64_t> layered_windows(ConfigReader& reader, int64_t layers);

}  // namespace wgrad::model
