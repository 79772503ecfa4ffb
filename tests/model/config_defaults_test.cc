// Files that leave fields out: as published ones do, and down to the name of the family.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/json.h"
#include "model/testing.h"

namespace wgrad::model::testing {
namespace {

using nlohmann::json;

std::string text_of(const RopeConfig& rope) {
  const auto& [scaling, theta, factor, rotary_dim, low, high, beta_fast, beta_slow, truncate,
               short_factors, long_factors, original, attention_factor] = rope;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(scaling), theta,
                     factor, rotary_dim, low, high, beta_fast, beta_slow, truncate,
                     fmt::join(short_factors, ","), fmt::join(long_factors, ","),
                     scaling == RopeScaling::kNone ? 0 : original, attention_factor);
}

/// Every field but the ends of a text, which come from the tokenizer too, and the file's own text.
std::vector<std::string> fields_of(const ModelConfig& config) {
  const auto& [model_type, body, other_parts, vocab_size, hidden_size, intermediate_size, layers,
               heads, kv_heads, head_dim, max_positions, rms_norm_eps, norm_offset, pre_norms,
               post_norms, qk_norm, qkv_bias, output_bias, mlp_bias, fused_qkv, fused_gate_up,
               tied_embeddings, activation, embedding_scale, residual_scale, logits,
               attention_soft_cap, attention_scale, windows, ropes, layer_ropes, eos_ids, text] =
      config;
  std::vector<std::string> fields = {
      fmt::format("names {} {} {}", model_type, body, fmt::join(other_parts, ",")),
      fmt::format("sizes {} {} {} {}", vocab_size, hidden_size, intermediate_size, layers),
      fmt::format("heads {} {} {}, positions {}", heads, kv_heads, head_dim, max_positions),
      fmt::format("norms {} {} {} {} {}", rms_norm_eps, norm_offset, pre_norms, post_norms,
                  static_cast<int>(qk_norm)),
      fmt::format("layers {} {} {} {} {} {} {}", qkv_bias, output_bias, mlp_bias, fused_qkv,
                  fused_gate_up, tied_embeddings, static_cast<int>(activation)),
      fmt::format("scales {} {} {} {} {} {}", embedding_scale, residual_scale, logits.scale,
                  logits.soft_cap, attention_soft_cap, attention_scale),
      fmt::format("windows {}", fmt::join(windows, ",")),
      fmt::format("ropes of layers {}", fmt::join(layer_ropes, ","))};
  for (const RopeConfig& rope : ropes) fields.push_back(text_of(rope));
  return fields;
}

TEST(ConfigDefaults, AreThoseOfTransformers) {
  const json entries = io::read_json_file(data_folder() / "configs.json");
  ASSERT_GE(entries.size(), 21u);
  for (const json& entry : entries) {
    const std::string name = entry.at("name");
    SCOPED_TRACE(name);
    EXPECT_EQ(fields_of(parse_config(entry.at("given"), name)),
              fields_of(parse_config(entry.at("full"), name)));
  }
}

TEST(ConfigDefaults, HoldForEachFieldAlone) {
  for (const json& entry : io::read_json_file(data_folder() / "configs.json")) {
    const std::string name = entry.at("name");
    if (!name.ends_with(" alone")) continue;
    const std::vector<std::string> whole = fields_of(parse_config(entry.at("full"), name));
    for (const auto& [field, value] : entry.at("full").items()) {
      if (field == "text_config") continue;
      json without = entry.at("full");
      without.erase(field);
      EXPECT_EQ(fields_of(parse_config(without, name)), whole) << name << " without " << field;
    }
  }
}

}  // namespace
}  // namespace wgrad::model::testing
