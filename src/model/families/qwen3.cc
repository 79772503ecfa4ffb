// Qwen3 (dense): norms over each head of q and k, a head size of its own.

#include "model/families/family.h"

namespace wgrad::model {

void configure_qwen3(ConfigReader& reader, ModelConfig& config) {
  const bool attention_bias = reader.flag("attention_bias", false);
  config.qkv_bias = attention_bias;
  config.output_bias = attention_bias;
  config.qk_norm = QkNorm::kHead;
  config.windows = layered_windows(reader, config.layers);
}

}  // namespace wgrad::model
