// Gemma 2 and the text part of Gemma 3: four norms a block that multiply by 1 + w, gelu, scaled
// embeddings, soft caps; windows and, in Gemma 3, another rotation in most layers.

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/families/family.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

using nlohmann::json;

/// The cap, or 0 where there is none.
double soft_cap(ConfigReader& reader, std::string_view field) {
  return reader.has(field) ? reader.positive(field) : 0.0;
}

/// "sliding_attention" but in every `pattern`-th layer, unless layer_types says otherwise.
void read_windows(ConfigReader& reader, int64_t pattern, ModelConfig& config) {
  constexpr int64_t kMostWindow = int64_t{1} << 30;
  const int64_t window = reader.size("sliding_window", kMostWindow);
  if (const json* types = reader.find("layer_types")) {
    config.windows = windows_from_types(reader, *types, config.layers, window);
    return;
  }
  for (int64_t i = 0; i < config.layers; ++i) {
    config.windows.push_back((i + 1) % pattern == 0 ? 0 : window);
  }
}

void configure_both(ConfigReader& reader, int64_t pattern, ModelConfig& config) {
  const bool attention_bias = reader.flag("attention_bias", false);
  config.qkv_bias = attention_bias;
  config.output_bias = attention_bias;
  config.post_norms = true;
  config.norm_offset = 1.0f;
  config.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  config.attention_scale =
      static_cast<float>(1.0 / std::sqrt(reader.positive("query_pre_attn_scalar")));
  config.logits.soft_cap = soft_cap(reader, "final_logit_softcapping");
  const std::string activation = reader.text("hidden_activation", "gelu_pytorch_tanh");
  if (activation != "gelu_pytorch_tanh") {
    throw input_error(reader.where(), fmt::format("hidden_activation is \"{}\"", activation),
                      "gelu_pytorch_tanh");
  }
  config.activation = ops::Activation::kGeluTanh;
  read_windows(reader, pattern, config);
  reader.must_be("use_bidirectional_attention", false);
  // hidden_act is an older name that has no effect beside hidden_activation.
  reader.ignore({"hidden_act", "cache_implementation"});
}

/// The rotation of layers without a window, then that of layers with one.
std::vector<RopeConfig> gemma3_ropes(ConfigReader& reader, const ModelConfig& config) {
  RopeConfig full = {.theta = reader.positive("rope_theta"), .rotary_dim = config.head_dim};
  RopeConfig local = {.theta = reader.positive("rope_local_base_freq"),
                      .rotary_dim = config.head_dim};
  const auto read = [&](const json& object, const std::string& where, RopeConfig& rope) {
    rope = read_rope_object(object, reader.where() + ": " + where, config.max_positions,
                            config.head_dim, false, rope);
  };
  if (const json* object = reader.find("rope_scaling")) read(*object, "rope_scaling", full);
  const json* both = reader.find("rope_parameters");
  if (both == nullptr) return {full, local};
  if (reader.has("rope_scaling")) {
    throw input_error(reader.where(), "rope_parameters and rope_scaling are given", "one of them");
  }
  ConfigReader types(*both, reader.where() + ": rope_parameters");
  if (const json* object = types.find("full_attention")) {
    read(*object, "rope_parameters: full_attention", full);
  }
  if (const json* object = types.find("sliding_attention")) {
    read(*object, "rope_parameters: sliding_attention", local);
  }
  types.refuse_rest();
  return {full, local};
}

}  // namespace

void configure_gemma2(ConfigReader& reader, ModelConfig& config) {
  configure_both(reader, 2, config);
  config.attention_soft_cap = static_cast<float>(soft_cap(reader, "attn_logit_softcapping"));
}

void configure_gemma3(ConfigReader& reader, ModelConfig& config) {
  constexpr int64_t kMostPattern = 4096;
  configure_both(reader, reader.size("sliding_window_pattern", kMostPattern), config);
  config.qk_norm = QkNorm::kHead;
  config.ropes = gemma3_ropes(reader, config);
  for (const int64_t window : config.windows) config.layer_ropes.push_back(window > 0 ? 1 : 0);
}

}  // namespace wgrad::model
