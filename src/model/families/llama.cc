// Llama 1 to 3.x, and what shares its architecture: SmolLM2, TinyLlama, Yi, ...

#include <nlohmann/json.hpp>

#include "model/families/family.h"

namespace wgrad::model {

void configure_llama(ConfigReader& reader, ModelConfig& config) {
  const bool attention_bias = reader.flag("attention_bias", false);
  config.qkv_bias = attention_bias;
  config.output_bias = attention_bias;
  config.mlp_bias = reader.flag("mlp_bias", false);
  // More than 1 sums the products in slices.
  reader.must_be("pretraining_tp", 1);
  reader.must_be("rope_interleaved", false);
}

}  // namespace wgrad::model
