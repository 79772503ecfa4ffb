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
  /// sizes that all share (see read_common_fields) are already set.
  void (*configure)(ConfigReader& reader, ModelConfig& config);
  /// Where config.json does not say whether the output layer is the embedding table.
  bool tied_by_default = false;
};

std::span<const Family> families();

void configure_llama(ConfigReader& reader, ModelConfig& config);
void configure_mistral(ConfigReader& reader, ModelConfig& config);
void configure_qwen2(ConfigReader& reader, ModelConfig& config);
void configure_qwen3(ConfigReader& reader, ModelConfig& config);

/// The windows of models that give layer_types, or else use_sliding_window and max_window_layers.
std::vector<int64_t> layered_windows(ConfigReader& reader, int64_t layers);

}  // namespace wgrad::model
