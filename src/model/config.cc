#include "model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/gguf.h"
#include "io/gguf_names.h"
#include "io/json.h"
#include "model/config_reader.h"
#include "model/families/family.h"
#include "model/rope.h"
#include "wgrad/error.h"

namespace wgrad::model {

using nlohmann::json;

namespace {

constexpr int64_t kMostVocab = int64_t{1} << 24;
constexpr int64_t kMostHidden = int64_t{1} << 20;
constexpr int64_t kMostIntermediate = int64_t{1} << 22;
constexpr int64_t kMostLayers = 4096;
constexpr int64_t kMostHeads = 4096;
constexpr int64_t kMostHeadDim = 4096;
constexpr int64_t kMostPositions = int64_t{1} << 26;

const Family& find_family(ConfigReader& reader) {
  std::vector<std::string_view> names;
  for (const Family& family : families()) names.push_back(family.architecture);
  const std::string known = fmt::format("one of {}", fmt::join(names, ", "));

  std::string architecture;
  if (const json* list = reader.find("architectures")) {
    if (!list->is_array() || list->size() != 1 || !list->front().is_string()) {
      throw input_error(reader.where(), "architectures is " + brief(*list), "a list of one name");
    }
    architecture = list->front().get<std::string>();
  }
  const std::string type = reader.text("model_type", "");
  if (architecture.empty() && type.empty()) {
    throw input_error(reader.where(), "neither architectures nor model_type is given", known);
  }
  for (const Family& family : families()) {
    const bool architecture_fits = architecture.empty() || architecture == family.architecture;
    if (architecture_fits && (type.empty() || type == family.model_type)) return family;
  }
  throw input_error(reader.where(),
                    fmt::format("architecture {} (model_type {}) is unknown",
                                architecture.empty() ? "not given" : architecture,
                                type.empty() ? "not given" : type),
                    known);
}

void read_sizes(ConfigReader& reader, ModelConfig& config) {
  config.vocab_size = reader.size("vocab_size", kMostVocab);
  config.hidden_size = reader.size("hidden_size", kMostHidden);
  config.intermediate_size = reader.size("intermediate_size", kMostIntermediate);
  config.layers = reader.size("num_hidden_layers", kMostLayers);
  config.heads = reader.size("num_attention_heads", kMostHeads);
  config.kv_heads = reader.size("num_key_value_heads", kMostHeads, config.heads);
  if (config.heads % config.kv_heads != 0) {
    throw input_error(reader.where(),
                      fmt::format("num_attention_heads is {}, num_key_value_heads is {}",
                                  config.heads, config.kv_heads),
                      "the first a multiple of the second");
  }
  const bool own_head_dim = reader.has("head_dim");
  if (!own_head_dim && config.hidden_size % config.heads != 0) {
    throw input_error(reader.where(),
                      fmt::format("hidden_size is {}, num_attention_heads is {}",
                                  config.hidden_size, config.heads),
                      "the first a multiple of the second, or head_dim given");
  }
  config.head_dim =
      own_head_dim ? reader.size("head_dim", kMostHeadDim) : config.hidden_size / config.heads;
  if (config.head_dim % 2 != 0 || config.head_dim > kMostHeadDim) {
    throw input_error(reader.where(), fmt::format("the size of a head is {}", config.head_dim),
                      fmt::format("an even number up to {}", kMostHeadDim));
  }
  config.max_positions = reader.size("max_position_embeddings", kMostPositions, 2048);
  config.rms_norm_eps = static_cast<float>(reader.positive("rms_norm_eps", 1e-6, 1.0));
}

void read_eos(ConfigReader& reader, std::vector<uint32_t>& ids) {
  const json* value = reader.find("eos_token_id");
  if (value == nullptr) return;
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kMostVocab) {
      throw input_error(reader.where(), "eos_token_id is " + brief(*value),
                        "a token id or a list of them");
    }
    const auto token = id.get<uint32_t>();
    if (std::find(ids.begin(), ids.end(), token) == ids.end()) ids.push_back(token);
  }
}

void check_neutral_fields(ConfigReader& reader) {
  reader.must_be("hidden_act", "silu");
  reader.must_be("hidden_activation", "silu");
  reader.must_be("partial_rotary_factor", 1.0);
  reader.must_be("attention_dropout", 0.0);
  reader.must_be("is_encoder_decoder", false);
  reader.must_be("add_cross_attention", false);
  reader.must_be("quantization_config", nullptr);
  reader.must_be("final_logit_softcapping", nullptr);
  reader.must_be("attn_logit_softcapping", nullptr);
  // What transformers writes into every config, and notes that common tools leave there.
  reader.ignore({"transformers_version",
                 "torch_dtype",
                 "dtype",
                 "auto_map",
                 "initializer_range",
                 "use_cache",
                 "bos_token_id",
                 "pad_token_id",
                 "sep_token_id",
                 "unk_token_id",
                 "decoder_start_token_id",
                 "return_dict",
                 "output_hidden_states",
                 "output_attentions",
                 "torchscript",
                 "use_bfloat16",
                 "tf_legacy_loss",
                 "pruned_heads",
                 "chunk_size_feed_forward",
                 "is_decoder",
                 "cross_attention_hidden_size",
                 "tie_encoder_decoder",
                 "tokenizer_class",
                 "prefix",
                 "finetuning_task",
                 "id2label",
                 "label2id",
                 "num_labels",
                 "task_specific_params",
                 "problem_type",
                 "max_length",
                 "min_length",
                 "do_sample",
                 "early_stopping",
                 "num_beams",
                 "num_beam_groups",
                 "diversity_penalty",
                 "temperature",
                 "top_k",
                 "top_p",
                 "typical_p",
                 "repetition_penalty",
                 "length_penalty",
                 "no_repeat_ngram_size",
                 "encoder_no_repeat_ngram_size",
                 "bad_words_ids",
                 "num_return_sequences",
                 "output_scores",
                 "return_dict_in_generate",
                 "forced_bos_token_id",
                 "forced_eos_token_id",
                 "remove_invalid_values",
                 "exponential_decay_length_penalty",
                 "suppress_tokens",
                 "begin_suppress_tokens",
                 "transformers.js_config",
                 "is_llama_config",
                 "unsloth_fixed",
                 "unsloth_version",
                 "model_name"});
}

}  // namespace

std::string_view projection_name(Projection projection) {
  static constexpr std::string_view kNames[kProjectionCount] = {
      "self_attn.q_proj", "self_attn.k_proj",   "self_attn.v_proj",
      "self_attn.o_proj", "mlp.gate_proj",      "mlp.up_proj",
      "mlp.down_proj",    "self_attn.qkv_proj", "mlp.gate_up_proj"};
  return kNames[static_cast<size_t>(projection)];
}

std::span<const Projection> parts_of(Projection stored) {
  const auto from = [](Projection first, size_t count) {
    return std::span(kProducts).subspan(static_cast<size_t>(first), count);
  };
  if (stored == Projection::kQkv) return from(Projection::kQ, 3);
  if (stored == Projection::kGateUp) return from(Projection::kGate, 2);
  return from(stored, 1);
}

std::string module_name(int64_t layer, Projection projection) {
  return fmt::format("model.layers.{}.{}", layer, projection_name(projection));
}

std::vector<Projection> ModelConfig::projections() const {
  std::vector<Projection> stored;
  for (const Projection p : kProducts) {
    if (stored.empty() || stored.back() != stored_in(p)) stored.push_back(stored_in(p));
  }
  return stored;
}

Projection ModelConfig::stored_in(Projection part) const {
  const bool attention = part == Projection::kQ || part == Projection::kK || part == Projection::kV;
  if (fused_qkv && attention) return Projection::kQkv;
  if (fused_gate_up && (part == Projection::kGate || part == Projection::kUp)) {
    return Projection::kGateUp;
  }
  return part;
}

int64_t ModelConfig::out_features(Projection projection) const {
  switch (projection) {
    case Projection::kQ:
      return query_size();
    case Projection::kK:
    case Projection::kV:
      return key_size();
    case Projection::kGate:
    case Projection::kUp:
      return intermediate_size;
    case Projection::kO:
    case Projection::kDown:
      return hidden_size;
    case Projection::kQkv:
      return query_size() + 2 * key_size();
    case Projection::kGateUp:
      return 2 * intermediate_size;
  }
  return 0;
}

int64_t ModelConfig::in_features(Projection projection) const {
  switch (projection) {
    case Projection::kO:
      return query_size();
    case Projection::kDown:
      return intermediate_size;
    default:
      return hidden_size;
  }
}

bool ModelConfig::has_bias(Projection projection) const {
  switch (projection) {
    case Projection::kQ:
    case Projection::kK:
    case Projection::kV:
    case Projection::kQkv:
      return qkv_bias;
    case Projection::kO:
      return output_bias;
    default:
      return mlp_bias;
  }
}

int64_t ModelConfig::parameters() const {
  int64_t block = 2 * hidden_size + (qk_norm ? 2 * head_dim : 0);
  for (const Projection p : projections()) {
    block += out_features(p) * in_features(p) + (has_bias(p) ? out_features(p) : 0);
  }
  const int64_t table = vocab_size * hidden_size;
  return layers * block + hidden_size + (tied_embeddings ? table : 2 * table);
}

ModelConfig parse_config(const json& object, std::string_view where) {
  ConfigReader reader(object, std::string(where));
  const Family& family = find_family(reader);
  ModelConfig config;
  config.model_type = family.model_type;
  config.json = object.dump();
  read_sizes(reader, config);
  config.rope = read_rope(reader, config.max_positions);
  config.tied_embeddings = reader.flag("tie_word_embeddings", family.tied_by_default);
  read_eos(reader, config.eos_ids);
  check_neutral_fields(reader);
  family.configure(reader, config);
  reader.refuse_rest();
  return config;
}

ModelConfig read_config(const std::filesystem::path& model) {
  if (model.extension() == ".gguf") {
    return parse_config(io::gguf_config_json(io::GgufFile::open(model)), model.string());
  }
  std::error_code error;
  if (!std::filesystem::is_directory(model, error)) {
    const bool is_file = std::filesystem::exists(model, error);
    throw input_error(model.string(), is_file ? "is no .gguf file by its name" : "no such folder",
                      "a Hugging Face folder or a .gguf file",
                      is_file ? "give the folder that holds the model's config.json, or rename a "
                                "GGUF file so that it ends in .gguf"
                              : "check the path");
  }
  const std::filesystem::path file = model / "config.json";
  ModelConfig config = parse_config(io::read_json_file(file), file.string());
  const std::filesystem::path generation = model / "generation_config.json";
  if (std::filesystem::symlink_status(generation, error).type() !=
      std::filesystem::file_type::not_found) {
    const json object = io::read_json_file(generation);
    ConfigReader reader(object, generation.string());
    read_eos(reader, config.eos_ids);
  }
  return config;
}

}  // namespace wgrad::model
