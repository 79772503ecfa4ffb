#include "model/gguf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "wgrad/error.h"

namespace wgrad::model {
namespace {

constexpr GgufArchitecture kArchitectures[] = {
    {"llama", "llama", true, true, true, false, QkNorm::kNone},
    {"mistral", "llama", true, true, true, true, QkNorm::kNone},
    {"qwen2", "qwen2", false, true, false, false, QkNorm::kNone},
    {"qwen3", "qwen3", false, false, false, false, QkNorm::kHead},
};

bool sees_all(const ModelConfig& config) {
  return std::ranges::all_of(config.windows, [&](int64_t window) {
    return window == 0 || window >= config.max_positions;
  });
}

/// What of a config no key and no tensor stands for; empty where all of it is written.
std::string_view inexpressible(const ModelConfig& config, const GgufArchitecture& architecture) {
  // Names every field, so that a new one does not compile until it is decided on here.
  const auto& [model_type, vocab_size, hidden_size, intermediate_size, layers, heads, kv_heads,
               head_dim, max_positions, rms_norm_eps, norm_offset, pre_norms, post_norms, qk_norm,
               qkv_bias, output_bias, mlp_bias, fused_qkv, fused_gate_up, tied_embeddings,
               activation, embedding_scale, residual_scale, logits, attention_soft_cap,
               attention_scale, windows, ropes, layer_ropes, eos_ids, json] = config;
  if (qkv_bias && !architecture.qkv_bias) return "biases of q, k and v";
  if (output_bias && !architecture.other_bias) return "a bias of the attention's output";
  if (mlp_bias && !architecture.other_bias) return "biases in the MLP";
  if (fused_qkv || fused_gate_up) return "layers that are stored fused";
  if (qk_norm != architecture.qk_norm) return "another kind of attention";
  if (norm_offset != 0 || !pre_norms || post_norms) return "other norms";
  if (activation != ops::Activation::kSilu) return "another activation";
  const auto usual = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  if (embedding_scale != 1 || residual_scale != 1 || !logits.is_identity() ||
      attention_soft_cap != 0 || std::abs(attention_scale - usual) > 1e-6f * usual) {
    return "multipliers or soft caps";
  }
  const bool same_rope =
      ropes.size() == 1 && std::ranges::all_of(layer_ropes, [](int rope) { return rope == 0; });
  if (!same_rope || ropes[0].rotary_dim != head_dim || ropes[0].attention_factor != 1 ||
      (ropes[0].scaling != RopeScaling::kNone && ropes[0].scaling != RopeScaling::kLinear &&
       ropes[0].scaling != RopeScaling::kLlama3)) {
    return "another rotary embedding";
  }
  const bool one = std::ranges::adjacent_find(windows, std::not_equal_to<>()) == windows.end();
  if (!sees_all(config) && !(architecture.window && one)) return "sliding windows";
  return {};
}

}  // namespace

const GgufArchitecture& gguf_architecture(const ModelConfig& config, std::string_view where) {
  const auto found =
      std::ranges::find(kArchitectures, config.model_type, &GgufArchitecture::model_type);
  if (found == std::end(kArchitectures)) {
    throw input_error(where, fmt::format("models of the type \"{}\"", config.model_type),
                      "a type that can be exported", "use `wgrad merge`");
  }
  if (const std::string_view what = inexpressible(config, *found); !what.empty()) {
    throw input_error(where, fmt::format("the model has {}", what),
                      fmt::format("what llama.cpp's architecture {} has", found->name),
                      "this model cannot be exported to GGUF; use `wgrad merge`");
  }
  return *found;
}

std::vector<float> rope_divisors(const ModelConfig& config) {
  const RopeConfig& rope = config.ropes.front();
  if (rope.scaling != RopeScaling::kLlama3) return {};
  RopeConfig plain = rope;
  plain.scaling = RopeScaling::kNone;
  const auto unscaled = rope_inverse_frequencies(plain, config.max_positions);
  const auto scaled = rope_inverse_frequencies(rope, config.max_positions);
  std::vector<float> divisors;
  for (size_t i = 0; i < scaled.size(); ++i) {
    divisors.push_back(static_cast<float>(unscaled[i] / scaled[i]));
  }
  return divisors;
}

void write_architecture(const ModelConfig& config, const GgufArchitecture& architecture,
                        io::GgufWriter& writer, std::vector<std::string>& notes) {
  const auto key = [&](std::string_view name) {
    return fmt::format("{}.{}", architecture.name, name);
  };
  const auto number = [&](std::string_view name, int64_t value) {
    writer.number(key(name), static_cast<uint32_t>(value));
  };
  const RopeConfig& rope = config.ropes.front();
  number("block_count", config.layers);
  number("context_length", config.max_positions);
  number("embedding_length", config.hidden_size);
  number("feed_forward_length", config.intermediate_size);
  number("attention.head_count", config.heads);
  number("attention.head_count_kv", config.kv_heads);
  number("attention.key_length", config.head_dim);
  number("attention.value_length", config.head_dim);
  writer.fraction(key("attention.layer_norm_rms_epsilon"), config.rms_norm_eps);
  number("vocab_size", config.vocab_size);
  number("rope.dimension_count", config.head_dim);
  writer.fraction(key("rope.freq_base"), static_cast<float>(rope.theta));
  if (rope.scaling == RopeScaling::kLinear) {
    writer.text(key("rope.scaling.type"), "linear");
    writer.fraction(key("rope.scaling.factor"), static_cast<float>(rope.factor));
  }
  if (!sees_all(config)) {
    number("attention.sliding_window", config.windows.front());
    notes.push_back(
        fmt::format("llama.cpp ignores the sliding window: its results differ beyond {} tokens",
                    config.windows.front()));
  }
}

void write_tokenizer(const text::GgufTokenizerParts& parts, io::GgufWriter& writer) {
  const auto key = [](std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); };
  writer.text(key("model"), parts.model);
  writer.text(key("pre"), parts.pre);
  writer.texts(key("tokens"), parts.tokens);
  if (!parts.scores.empty()) writer.fractions(key("scores"), parts.scores);
  writer.numbers(key("token_type"), parts.types);
  writer.texts(key("merges"), parts.merges);
  const auto id = [&](std::string_view name, const std::optional<uint32_t>& value) {
    if (value) writer.number(key(name), *value);
  };
  id("bos_token_id", parts.bos_id);
  id("eos_token_id", parts.eos_id);
  id("eot_token_id", parts.eot_id);
  id("unknown_token_id", parts.unknown_id);
  id("padding_token_id", parts.padding_id);
  const auto flag = [&](std::string_view name, const std::optional<bool>& value) {
    if (value) writer.flag(key(name), *value);
  };
  flag("add_bos_token", parts.add_bos);
  flag("add_eos_token", parts.add_eos);
  flag("add_space_prefix", parts.add_space_prefix);
  if (parts.chat_template) writer.text("tokenizer.chat_template", *parts.chat_template);
}

}  // namespace wgrad::model
