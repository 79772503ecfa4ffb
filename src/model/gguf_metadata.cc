#include "model/gguf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "wgrad/error.h"

namespace wgrad::model {
namespace {

constexpr GgufArchitecture kArchitectures[] = {
    {.model_type = "gemma2",
     .name = "gemma2",
     .own_output = false,
     .yarn = false,
     .windows = GgufWindows::kPeriodic,
     .period = 2,
     .layers_of_largest = 46},
    {.model_type = "gemma3_text",
     .name = "gemma3",
     .yarn = false,
     .windows = GgufWindows::kPeriodic,
     .period = 6,
     .period_key = true,
     .layers_of_largest = 62},
    {.model_type = "granite",
     .name = "granite",
     .neighbouring_pairs = true,
     .other_bias = true,
     .divided_pairs = true},
    {.model_type = "llama",
     .name = "llama",
     .neighbouring_pairs = true,
     .other_bias = true,
     .divided_pairs = true},
    {.model_type = "mistral",
     .name = "llama",
     .neighbouring_pairs = true,
     .other_bias = true,
     .divided_pairs = true,
     .windows = GgufWindows::kIgnored},
    {.model_type = "olmo2", .name = "olmo2", .own_head_size = false, .tied_output = false},
    {.model_type = "phi3",
     .name = "phi3",
     .own_head_size = false,
     .windows = GgufWindows::kIgnored},
    {.model_type = "qwen2", .name = "qwen2", .own_head_size = false},
    {.model_type = "qwen3", .name = "qwen3", .qkv_bias = false},
    {.model_type = "smollm3", .name = "smollm3", .neighbouring_pairs = true, .no_rope_period = 4},
};

bool sees_all(const ModelConfig& config) {
  return std::ranges::all_of(config.windows, [&](int64_t window) {
    return window == 0 || window >= config.max_positions;
  });
}

/// The n of a model in which each n-th layer has no window and all others have the same; else 0.
int64_t period_of(const std::vector<int64_t>& windows) {
  const auto first = std::ranges::find(windows, 0) - windows.begin();
  if (first == 0) return 0;
  for (size_t i = 0; i < windows.size(); ++i) {
    const bool none = (static_cast<int64_t>(i) + 1) % (first + 1) == 0;
    if (windows[i] != (none ? 0 : windows[0])) return 0;
  }
  return first + 1;
}

bool has_windows(const ModelConfig& config, const GgufArchitecture& architecture) {
  if (architecture.windows == GgufWindows::kPeriodic) {
    const int64_t period = period_of(config.windows);
    return period == architecture.period || (architecture.period_key && period > 1);
  }
  const bool one =
      std::ranges::adjacent_find(config.windows, std::not_equal_to<>()) == config.windows.end();
  return sees_all(config) || (architecture.windows == GgufWindows::kIgnored && one);
}

bool has_scores(const ModelConfig& config, const GgufArchitecture& architecture) {
  if (architecture.name == "granite") return true;
  const bool largest = config.layers == architecture.layers_of_largest;
  const int64_t size = largest ? config.hidden_size / config.heads : config.head_dim;
  const auto usual = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
  return std::abs(config.attention_scale - usual) <= 1e-6f * usual;
}

/// Of the layers without a window.
bool has_rope(const ModelConfig& config, const GgufArchitecture& architecture) {
  for (size_t i = 0; i < config.layer_ropes.size(); ++i) {
    const int64_t period = architecture.no_rope_period;
    const bool none = period > 0 && (static_cast<int64_t>(i) + 1) % period == 0;
    if ((config.layer_ropes[i] == kNoRope) != none) return false;
  }
  const RopeConfig& rope = config.ropes.front();
  switch (rope.scaling) {
    case RopeScaling::kLlama3:
      return architecture.divided_pairs;
    case RopeScaling::kYarn:
      return architecture.yarn && rope.truncate &&
             std::abs(rope.attention_factor - yarn_attention_factor(rope.factor)) <= 1e-6;
    case RopeScaling::kDynamic:
      return false;
    case RopeScaling::kLongRope:
      return architecture.name == "phi3";
    default:
      return true;
  }
}

/// What of a config no key and no tensor stands for; empty where all of it is written.
std::string_view inexpressible(const ModelConfig& config, const GgufArchitecture& architecture) {
  // Names every field, so that a new one does not compile until it is decided on here. The kinds of
  // norms, fused layers and the activation follow from the family.
  const auto& [model_type, body, other_parts, vocab_size, hidden_size, intermediate_size, layers,
               heads, kv_heads, head_dim, max_positions, rms_norm_eps, norm_offset, pre_norms,
               post_norms, qk_norm, qkv_bias, output_bias, mlp_bias, fused_qkv, fused_gate_up,
               tied_embeddings, activation, embedding_scale, residual_scale, logits,
               attention_soft_cap, attention_scale, windows, ropes, layer_ropes, eos_ids, json] =
      config;
  if (!other_parts.empty()) return "parts beside the text model";
  if (qkv_bias && !architecture.qkv_bias) return "biases of q, k and v";
  if (output_bias && !architecture.other_bias) return "a bias of the attention's output";
  if (mlp_bias && !architecture.other_bias) return "biases in the MLP";
  if (heads * head_dim != hidden_size && !architecture.own_head_size)
    return "heads of their own size";
  if (tied_embeddings && !architecture.tied_output) return "an output layer that is the embedding";
  if (!tied_embeddings && !architecture.own_output) return "an output layer of its own";
  if (architecture.name == "gemma2" && (logits.soft_cap == 0 || attention_soft_cap == 0)) {
    return "no soft caps";
  }
  if (!has_scores(config, architecture)) return "another scale of the attention's scores";
  if (!has_rope(config, architecture)) return "another rotary embedding";
  if (ropes.size() > 1 && ropes[1].scaling != RopeScaling::kNone) {
    return "a scaled rotary embedding in layers with a window";
  }
  if (!has_windows(config, architecture)) return "sliding windows";
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

std::vector<RopeDivisors> rope_divisors(const ModelConfig& config) {
  const RopeConfig& rope = config.ropes.front();
  if (rope.scaling == RopeScaling::kLongRope) {
    const auto narrow = [](const std::vector<double>& values) {
      return std::vector<float>(values.begin(), values.end());
    };
    return {{"rope_factors_long.weight", narrow(rope.long_factors)},
            {"rope_factors_short.weight", narrow(rope.short_factors)}};
  }
  if (rope.scaling != RopeScaling::kLlama3) return {};
  RopeConfig plain = rope;
  plain.scaling = RopeScaling::kNone;
  const auto unscaled = rope_inverse_frequencies(plain, config.max_positions);
  const auto scaled = rope_inverse_frequencies(rope, config.max_positions);
  std::vector<float> divisors;
  for (size_t i = 0; i < scaled.size(); ++i) {
    divisors.push_back(static_cast<float>(unscaled[i] / scaled[i]));
  }
  return {{"rope_freqs.weight", std::move(divisors)}};
}

namespace {

/// Writes the keys of one model; those that only some architectures have in functions of their own.
class KeyWriter {
 public:
  KeyWriter(const ModelConfig& config, const GgufArchitecture& architecture, io::GgufWriter& writer,
            std::vector<std::string>& notes)
      : config_(config), architecture_(architecture), writer_(writer), notes_(notes) {}

  void write() {
    number("block_count", config_.layers);
    number("context_length", config_.max_positions);
    number("embedding_length", config_.hidden_size);
    number("feed_forward_length", config_.intermediate_size);
    number("attention.head_count", config_.heads);
    number("attention.head_count_kv", config_.kv_heads);
    number("attention.key_length", config_.head_dim);
    number("attention.value_length", config_.head_dim);
    fraction("attention.layer_norm_rms_epsilon", config_.rms_norm_eps);
    number("vocab_size", config_.vocab_size);
    rope();
    windows();
    soft_caps();
    if (architecture_.name == "granite") scales();
  }

 private:
  std::string key(std::string_view name) const {
    return fmt::format("{}.{}", architecture_.name, name);
  }
  void number(std::string_view name, int64_t value) {
    writer_.number(key(name), static_cast<uint32_t>(value));
  }
  void fraction(std::string_view name, double value) {
    writer_.fraction(key(name), static_cast<float>(value));
  }

  void rope() {
    const RopeConfig& rope = config_.ropes.front();
    number("rope.dimension_count", rope.rotary_dim);
    fraction("rope.freq_base", rope.theta);
    if (config_.ropes.size() > 1) fraction("rope.freq_base_swa", config_.ropes[1].theta);
    if (architecture_.name == "phi3") {
      number("rope.scaling.original_context_length", rope.original_max_positions);
    }
    if (rope.scaling == RopeScaling::kLinear) {
      writer_.text(key("rope.scaling.type"), "linear");
      fraction("rope.scaling.factor", rope.factor);
    } else if (rope.scaling == RopeScaling::kYarn) {
      yarn(rope);
    } else if (rope.scaling == RopeScaling::kLongRope) {
      fraction("rope.scaling.attn_factor", rope.attention_factor);
      notes_.push_back(fmt::format(
          "llama.cpp turns by the factors for long rows where its context is larger than {}, "
          "however long the text",
          rope.original_max_positions));
    }
  }

  void yarn(const RopeConfig& rope) {
    writer_.text(key("rope.scaling.type"), "yarn");
    fraction("rope.scaling.factor", rope.factor);
    number("rope.scaling.original_context_length", rope.original_max_positions);
    const RopeConfig usual;
    if (rope.beta_fast == usual.beta_fast && rope.beta_slow == usual.beta_slow) return;
    fraction("rope.scaling.yarn_beta_fast", rope.beta_fast);
    fraction("rope.scaling.yarn_beta_slow", rope.beta_slow);
    notes_.push_back(fmt::format(
        "llama.cpp takes {} and {} for beta_fast and beta_slow of YaRN: its results differ",
        usual.beta_fast, usual.beta_slow));
  }

  void windows() {
    const bool ignored = architecture_.windows == GgufWindows::kIgnored;
    if (architecture_.windows == GgufWindows::kPeriodic) {
      number("attention.sliding_window", config_.windows.front());
      const int64_t period = period_of(config_.windows);
      if (period != architecture_.period && architecture_.period_key) {
        number("attention.sliding_window_pattern", period);
      }
    } else if (!sees_all(config_)) {
      number("attention.sliding_window", config_.windows.front());
      notes_.push_back(
          fmt::format("llama.cpp ignores the sliding window: its results differ beyond {} tokens",
                      config_.windows.front()));
    } else if (ignored && architecture_.name == "phi3") {
      // Without this key some versions take a window of their own.
      number("attention.sliding_window", 0);
    }
  }

  void soft_caps() {
    if (config_.logits.soft_cap != 0) fraction("final_logit_softcapping", config_.logits.soft_cap);
    if (config_.attention_soft_cap != 0) {
      fraction("attn_logit_softcapping", config_.attention_soft_cap);
    }
  }

  void scales() {
    fraction("attention.scale", config_.attention_scale);
    fraction("embedding_scale", config_.embedding_scale);
    fraction("residual_scale", config_.residual_scale);
    fraction("logit_scale", 1 / config_.logits.scale);
  }

  const ModelConfig& config_;
  const GgufArchitecture& architecture_;
  io::GgufWriter& writer_;
  std::vector<std::string>& notes_;
};

}  // namespace

void write_architecture(const ModelConfig& config, const GgufArchitecture& architecture,
                        io::GgufWriter& writer, std::vector<std::string>& notes) {
  KeyWriter(config, architecture, writer, notes).write();
}

int64_t GgufArchitecture::reordered_head(const ModelConfig& config, std::string_view module) const {
  const bool rotated = module.find(".self_attn.q_proj") != std::string_view::npos ||
                       module.find(".self_attn.k_proj") != std::string_view::npos;
  return rotated && neighbouring_pairs ? config.head_dim : 0;
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
