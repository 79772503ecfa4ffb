// Granite 3: Llama with factors on embeddings, scores, residual sums and logits.

#include "model/families/family.h"

namespace wgrad::model {

void configure_granite(ConfigReader& reader, ModelConfig& config) {
  const bool attention_bias = reader.flag("attention_bias", false);
  config.qkv_bias = attention_bias;
  config.output_bias = attention_bias;
  config.mlp_bias = reader.flag("mlp_bias", false);
  config.embedding_scale = static_cast<float>(reader.positive("embedding_multiplier", 1.0));
  config.residual_scale = static_cast<float>(reader.positive("residual_multiplier", 1.0));
  config.attention_scale = static_cast<float>(reader.positive("attention_multiplier", 1.0));
  config.logits.scale = 1.0 / reader.positive("logits_scaling", 1.0);
}

}  // namespace wgrad::model
