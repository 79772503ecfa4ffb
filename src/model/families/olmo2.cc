// OLMo 2: norms of what the halves of a block give, none of what they take; q and k are normed over
// their whole width.

#include "model/families/family.h"

namespace wgrad::model {

void configure_olmo2(ConfigReader& reader, ModelConfig& config) {
  const bool attention_bias = reader.flag("attention_bias", false);
  config.qkv_bias = attention_bias;
  config.output_bias = attention_bias;
  config.qk_norm = QkNorm::kWhole;
  config.pre_norms = false;
  config.post_norms = true;
}

}  // namespace wgrad::model
