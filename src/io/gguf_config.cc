#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>
#include <vector>

#include "io/gguf_names.h"
#include "wgrad/error.h"

namespace wgrad::io {
namespace {

using nlohmann::json;

struct Family {
  std::string_view gguf;
  std::string_view model_type;
  std::string_view architecture;
};

constexpr Family kFamilies[] = {
    {"gemma2", "gemma2", "Gemma2ForCausalLM"},    {"gemma3", "gemma3_text", "Gemma3ForCausalLM"},
    {"granite", "granite", "GraniteForCausalLM"}, {"llama", "llama", "LlamaForCausalLM"},
    {"olmo2", "olmo2", "Olmo2ForCausalLM"},       {"phi3", "phi3", "Phi3ForCausalLM"},
    {"qwen2", "qwen2", "Qwen2ForCausalLM"},       {"qwen3", "qwen3", "Qwen3ForCausalLM"},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM"},
};

// Keys that would change what the model computes, unless the family's fields take them up.
constexpr std::string_view kRefused[] = {
    "expert_count",
    "logit_scale",
    "residual_scale",
    "embedding_scale",
    "attention.scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attn_logit_softcapping",
    "final_logit_softcapping",
};

// The number whose shortest decimal form gives the file's 32-bit float: 1e-5, not 9.9999997e-06,
// as a config.json has it.
double shortest(double value) {
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) return value;
  return std::strtod(fmt::format("{}", narrow).c_str(), nullptr);
}

// llama3 scaling in the terms of its four parameters.
struct Llama3Scaling {
  double factor = 1;
  double low = 1;
  double high = 4;
  double original = 8192;

  // What the frequency of this wavelength is divided by.
  double divisor(double wavelength) const {
    if (wavelength < original / high) return 1;
    if (wavelength > original / low) return factor;
    const double smooth = (original / wavelength - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
  }

  json to_json() const {
    return {{"rope_type", "llama3"},
            {"factor", shortest(factor)},
            {"low_freq_factor", low},
            {"high_freq_factor", high},
            {"original_max_position_embeddings", std::llround(original)}};
  }
};

class ConfigMaker {
 public:
  explicit ConfigMaker(const GgufFile& file)
      : file_(file), where_(file.file().path().string()), family_(find_family()) {}

  json make() {
    sizes();
    attention();
    config_["rms_norm_eps"] = shortest(required_number("attention.layer_norm_rms_epsilon"));
    family_fields();
    refuse_unknown();
    config_["tie_word_embeddings"] = file_.find_tensor("output.weight") == nullptr;
    config_["mlp_bias"] = file_.find_tensor("blk.0.ffn_gate.bias") != nullptr;
    rope();
    token("bos_token_id", "bos_token_id");
    token("eos_token_id", "eos_token_id");
    token("pad_token_id", "padding_token_id");
    return std::move(config_);
  }

 private:
  [[noreturn]] void fail(std::string_view seen, std::string_view expected) const {
    throw input_error(where_, seen, expected, "fetch or convert the model again");
  }

  const Family& find_family() const {
    const auto arch = file_.string("general.architecture");
    if (!arch) fail("there is no key general.architecture", "the name of the model's family");
    for (const Family& family : kFamilies) {
      if (family.gguf == *arch) return family;
    }
    throw input_error(where_, fmt::format("the architecture is \"{}\"", *arch),
                      "gemma2, gemma3, granite, llama, olmo2, phi3, qwen2, qwen3 or smollm3",
                      "use a model of a supported family");
  }

  std::string key(std::string_view name) const { return fmt::format("{}.{}", family_.gguf, name); }

  std::int64_t required(std::string_view name) const {
    const auto value = file_.integer(key(name));
    if (!value) fail(fmt::format("there is no key {}", key(name)), "the model's sizes");
    if (*value <= 0) fail(fmt::format("{} is {}", key(name), *value), "a number from 1");
    return *value;
  }

  double required_number(std::string_view name) const {
    const auto value = file_.number(key(name));
    if (!value) fail(fmt::format("there is no key {}", key(name)), "the model's constants");
    return *value;
  }

  void refuse_unknown() const {
    for (const std::string_view name : kRefused) {
      const auto value = file_.number(key(name));
      if (!value || *value == 0 || taken_.contains(name)) continue;
      throw input_error(where_, fmt::format("{} is {}", key(name), *value),
                        "a plain decoder of a supported family",
                        "use a model of a supported family");
    }
  }

  // A number that the family's config has under another name; 0 in the file means none.
  void take(const char* name, std::string_view gguf_name, json without) {
    taken_.insert(gguf_name);
    const double value = file_.number(key(gguf_name)).value_or(0);
    config_[name] = value == 0 ? std::move(without) : json(shortest(value));
  }

  void family_fields() {
    if (family_.gguf == "gemma2" || family_.gguf == "gemma3") {
      gemma_fields();
    } else {
      config_["hidden_act"] = "silu";
    }
    if (family_.gguf == "granite") {
      take("embedding_multiplier", "embedding_scale", 1.0);
      take("residual_multiplier", "residual_scale", 1.0);
      take("logits_scaling", "logit_scale", 1.0);
      take("attention_multiplier", "attention.scale", 1 / std::sqrt(double(head_dim_)));
    }
    if (family_.gguf == "phi3") {
      const std::int64_t window = file_.integer(key("attention.sliding_window")).value_or(0);
      config_["sliding_window"] = window > 0 ? json(window) : json();
    }
    // llama.cpp has this as a constant.
    if (family_.gguf == "smollm3") config_["no_rope_layer_interval"] = 4;
  }

  // What the file does not say is what llama.cpp takes for these architectures.
  void gemma_fields() {
    const std::int64_t layers = config_["num_hidden_layers"];
    const std::int64_t hidden = config_["hidden_size"], heads = config_["num_attention_heads"];
    const bool third = family_.gguf == "gemma3";
    config_["hidden_activation"] = "gelu_pytorch_tanh";
    config_["query_pre_attn_scalar"] = layers == (third ? 62 : 46) ? hidden / heads : head_dim_;
    config_["sliding_window"] = required("attention.sliding_window");
    take("final_logit_softcapping", "final_logit_softcapping", nullptr);
    if (third) {
      config_["sliding_window_pattern"] =
          file_.integer(key("attention.sliding_window_pattern")).value_or(6);
      config_["rope_local_base_freq"] =
          shortest(file_.number(key("rope.freq_base_swa")).value_or(10000.0));
    } else {
      take("attn_logit_softcapping", "attn_logit_softcapping", nullptr);
    }
  }

  void sizes() {
    config_["architectures"] = {family_.architecture};
    config_["model_type"] = family_.model_type;
    config_["hidden_size"] = required("embedding_length");
    config_["intermediate_size"] = required("feed_forward_length");
    config_["num_hidden_layers"] = required("block_count");
    config_["max_position_embeddings"] = required("context_length");
    const TensorView* embedding = file_.find_tensor("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2) {
      fail("there is no matrix token_embd.weight", "the token embedding");
    }
    config_["vocab_size"] = embedding->shape[0];
  }

  void attention() {
    const std::int64_t heads = required("attention.head_count");
    const bool grouped = file_.find(key("attention.head_count_kv")) != nullptr;
    config_["num_attention_heads"] = heads;
    config_["num_key_value_heads"] = grouped ? required("attention.head_count_kv") : heads;
    const auto key_length = file_.integer(key("attention.key_length"));
    const std::int64_t hidden = config_["hidden_size"];
    if (!key_length && hidden % heads != 0) {
      fail(fmt::format("{} heads do not divide the hidden size {}", heads, hidden),
           "attention.key_length or a size that divides");
    }
    head_dim_ = key_length.value_or(hidden / heads);
    if (head_dim_ <= 0) fail(fmt::format("the head size is {}", head_dim_), "a number from 1");
    config_["head_dim"] = head_dim_;
    config_["attention_bias"] = file_.find_tensor("blk.0.attn_q.bias") != nullptr;
    const auto window = file_.integer(key("attention.sliding_window"));
    if (family_.gguf == "llama" && window && *window > 0) {
      config_["architectures"] = {"MistralForCausalLM"};
      config_["model_type"] = "mistral";
      config_["sliding_window"] = *window;
    }
  }

  void rope() {
    theta_ = file_.number(key("rope.freq_base")).value_or(10000.0);
    if (!(theta_ > 0)) fail(fmt::format("{} is {}", key("rope.freq_base"), theta_), "above 0");
    config_["rope_theta"] = shortest(theta_);
    rotated_ = file_.integer(key("rope.dimension_count")).value_or(head_dim_);
    if (rotated_ <= 0 || rotated_ > head_dim_ || rotated_ % 2 != 0) {
      fail(fmt::format("{} is {}", key("rope.dimension_count"), rotated_),
           fmt::format("an even number up to the head size {}", head_dim_));
    }
    if (rotated_ != head_dim_) {
      config_["partial_rotary_factor"] =
          static_cast<double>(rotated_) / static_cast<double>(head_dim_);
    }
    json scaling = scaling_by_keys();
    const TensorView* divisors = file_.find_tensor("rope_freqs.weight");
    const TensorView* longer = file_.find_tensor("rope_factors_long.weight");
    if (int(!scaling.is_null()) + int(divisors != nullptr) + int(longer != nullptr) > 1) {
      fail("two kinds of rope scaling are given", "one of them");
    }
    if (divisors != nullptr) scaling = scaling_by_divisors(*divisors);
    if (longer != nullptr) scaling = longrope(*longer);
    if (!scaling.is_null()) config_["rope_scaling"] = std::move(scaling);
  }

  json scaling_by_keys() const {
    const std::string type(file_.string(key("rope.scaling.type")).value_or("none"));
    if (const auto factor = file_.number(key("rope.scale_linear")); factor && *factor != 1) {
      return {{"rope_type", "linear"}, {"factor", shortest(*factor)}};
    }
    if (type == "none") return nullptr;
    const double factor = required_number("rope.scaling.factor");
    if (type == "linear") return {{"rope_type", "linear"}, {"factor", shortest(factor)}};
    const double attention = file_.number(key("rope.scaling.attn_factor")).value_or(1);
    if (type != "yarn" || attention != 1) {
      throw input_error(
          where_,
          fmt::format("the rope scaling is \"{}\" with attention factor {}", type, attention),
          "none, linear, llama3, or yarn with its own attention factor",
          "use a model of a supported family");
    }
    json scaling = {{"rope_type", "yarn"}, {"factor", shortest(factor)}};
    optional_number(scaling, "beta_fast", "rope.scaling.yarn_beta_fast");
    optional_number(scaling, "beta_slow", "rope.scaling.yarn_beta_slow");
    if (const auto original = file_.integer(key("rope.scaling.original_context_length"))) {
      scaling["original_max_position_embeddings"] = *original;
    }
    return scaling;
  }

  // Phi's divisors for short and for long rows.
  json longrope(const TensorView& longer) {
    const TensorView* shorter = file_.find_tensor("rope_factors_short.weight");
    if (shorter == nullptr) fail("there is no tensor rope_factors_short.weight", "both of them");
    config_["original_max_position_embeddings"] = required("rope.scaling.original_context_length");
    json scaling = {{"rope_type", "longrope"},
                    {"short_factor", rounded(*shorter)},
                    {"long_factor", rounded(longer)}};
    optional_number(scaling, "attention_factor", "rope.scaling.attn_factor");
    return scaling;
  }

  std::vector<double> rounded(const TensorView& tensor) const {
    std::vector<double> numbers;
    for (const float value : divisors_of(tensor)) {
      if (!(value > 0) || !std::isfinite(value)) {
        throw input_error(tensor.where, fmt::format("a divisor is {}", value), "a number above 0",
                          "fetch or convert the model again");
      }
      numbers.push_back(shortest(value));
    }
    return numbers;
  }

  void optional_number(json& object, const char* name, std::string_view gguf_name) const {
    if (const auto value = file_.number(key(gguf_name))) object[name] = shortest(*value);
  }

  // The converter stores llama3 scaling as the divisor of each frequency. Finds the parameters
  // that give these divisors; only low : high : original matter, and 1 : 4 is what models use.
  json scaling_by_divisors(const TensorView& tensor) const {
    const std::vector<float> divisors = divisors_of(tensor);
    if (std::all_of(divisors.begin(), divisors.end(), [](float d) { return d == 1; }))
      return nullptr;
    for (const Llama3Scaling& candidate : candidates(divisors)) {
      if (gives(candidate, divisors)) return candidate.to_json();
    }
    throw input_error(tensor.where, "the divisors follow no llama3 rope scaling",
                      "plain, linear, llama3 or yarn scaling", "use a model of a supported family");
  }

  // One a rotated pair.
  std::vector<float> divisors_of(const TensorView& tensor) const {
    if (tensor.shape != std::vector<std::int64_t>{rotated_ / 2}) {
      throw input_error(tensor.where, fmt::format("the shape is {}", shape_text(tensor.shape)),
                        fmt::format("[{}], one a rotated pair", rotated_ / 2),
                        "fetch or convert the model again");
    }
    std::vector<float> divisors(static_cast<std::size_t>(rotated_ / 2));
    to_f32(tensor.type, tensor.bytes, divisors);
    return divisors;
  }

  double wavelength(std::size_t pair) const {
    return 2 * std::numbers::pi *
           std::pow(theta_, 2.0 * static_cast<double>(pair) / static_cast<double>(rotated_));
  }

  std::vector<Llama3Scaling> candidates(const std::vector<float>& divisors) const {
    Llama3Scaling usual;
    usual.factor = divisors.back();
    std::vector<Llama3Scaling> result = {usual};
    // Where 1 < divisor < factor, the blend is linear in 1 / wavelength.
    std::vector<std::pair<double, double>> blended;
    for (std::size_t i = 0; i < divisors.size(); ++i) {
      if (!(divisors[i] > 1 && divisors[i] < divisors.back())) continue;
      const double blend = (1 / double{divisors[i]} - 1 / usual.factor) / (1 - 1 / usual.factor);
      blended.emplace_back(1 / wavelength(i), blend);
    }
    for (const auto& [frequency, blend] : blended) {
      Llama3Scaling other = usual;
      other.original = std::round((blend * (other.high - other.low) + other.low) / frequency);
      result.push_back(other);
    }
    if (blended.size() >= 2) {
      const auto& [f0, b0] = blended.front();
      const auto& [f1, b1] = blended.back();
      const double slope = (b0 - b1) / (f0 - f1);
      Llama3Scaling other = usual;
      other.low = (slope * f0 - b0) * usual.original / slope;
      other.high = other.low + usual.original / slope;
      result.push_back(other);
    }
    return result;
  }

  bool gives(const Llama3Scaling& scaling, const std::vector<float>& divisors) const {
    constexpr double kTolerance = 1e-5;  // the converter computes in f32
    for (std::size_t i = 0; i < divisors.size(); ++i) {
      const double expected = scaling.divisor(wavelength(i));
      if (!(std::abs(divisors[i] - expected) <= kTolerance * expected)) return false;
    }
    return true;
  }

  void token(const char* name, std::string_view gguf_name) {
    if (const auto id = file_.integer(fmt::format("tokenizer.ggml.{}", gguf_name))) {
      config_[name] = *id;
    }
  }

  const GgufFile& file_;
  std::string where_;
  const Family& family_;
  json config_ = json::object();
  std::set<std::string_view> taken_;  ///< of kRefused
  std::int64_t head_dim_ = 0;
  std::int64_t rotated_ = 0;
  double theta_ = 0;
};

}  // namespace

json gguf_config_json(const GgufFile& file) { return ConfigMaker(file).make(); }

}  // namespace wgrad::io
