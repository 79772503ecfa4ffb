#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "io/gguf.h"
#include "io/gguf_names.h"
#include "io/json.h"
#include "model/config.h"
#include "model/config_reader.h"
#include "model/families/family.h"
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

/// What a config.json says that it is; empty where it does not.
struct Class {
  std::string architecture, model_type;

  template <typename Entry>
  bool is(const Entry& entry) const {
    return (architecture.empty() || architecture == entry.architecture) &&
           (model_type.empty() || model_type == entry.model_type);
  }
};

Class read_class(ConfigReader& reader) {
  Class found;
  if (const json* list = reader.find("architectures")) {
    if (!list->is_array() || list->size() != 1 || !list->front().is_string()) {
      throw input_error(reader.where(), "architectures is " + brief(*list), "a list of one name");
    }
    found.architecture = list->front().get<std::string>();
  }
  found.model_type = reader.text("model_type", "");
  return found;
}

[[noreturn]] void refuse_class(const ConfigReader& reader, const Class& found) {
  std::vector<std::string_view> names;
  for (const Family& family : families()) names.push_back(family.architecture);
  for (const Composite& composite : composites()) names.push_back(composite.architecture);
  const std::string known = fmt::format("one of {}", fmt::join(names, ", "));
  if (found.architecture.empty() && found.model_type.empty()) {
    throw input_error(reader.where(), "neither architectures nor model_type is given", known);
  }
  const auto shown = [](const std::string& name) { return name.empty() ? "not given" : name; };
  throw input_error(reader.where(),
                    fmt::format("architecture {} (model_type {}) is unknown",
                                shown(found.architecture), shown(found.model_type)),
                    known);
}

template <typename Entry>
const Entry* find_class(std::span<const Entry> known, const Class& found) {
  if (found.architecture.empty() && found.model_type.empty()) return nullptr;
  const auto at =
      std::find_if(known.begin(), known.end(), [&](const Entry& entry) { return found.is(entry); });
  return at == known.end() ? nullptr : &*at;
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
  config.max_positions = reader.size("max_position_embeddings", kMostPositions);
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

/// Fields that the family has not read.
void check_neutral_fields(ConfigReader& reader) {
  const std::pair<const char*, json> kNeutral[] = {{"hidden_act", "silu"},
                                                   {"hidden_activation", "silu"},
                                                   {"attention_dropout", 0.0},
                                                   {"is_encoder_decoder", false},
                                                   {"add_cross_attention", false},
                                                   {"quantization_config", nullptr},
                                                   {"final_logit_softcapping", nullptr},
                                                   {"attn_logit_softcapping", nullptr}};
  for (const auto& [field, value] : kNeutral) {
    if (!reader.asked_for(field)) reader.must_be(field, value);
  }
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

/// Sets what the family has left to all.
void complete(ConfigReader& reader, ModelConfig& config) {
  if (config.attention_scale == 0.0f) {
    const auto head_dim = static_cast<double>(config.head_dim);
    config.attention_scale = static_cast<float>(1.0 / std::sqrt(head_dim));
  }
  const auto layers = static_cast<size_t>(config.layers);
  if (config.windows.empty()) config.windows.assign(layers, 0);
  if (config.layer_ropes.empty()) config.layer_ropes.assign(layers, 0);
  if (config.ropes.empty()) {
    config.ropes = {read_rope(reader, config.max_positions, config.head_dim, false)};
  }
  for (const RopeConfig& rope : config.ropes) {
    if (rope.scaling != RopeScaling::kDynamic) continue;
    // Its whole point is rows beyond those of the first training.
    const double most = rope.factor * static_cast<double>(config.max_positions);
    config.max_positions =
        static_cast<int64_t>(std::min(most, static_cast<double>(kMostPositions)));
  }
}

/// The text model of a config.json of several models.
ModelConfig parse_composite(const Composite& composite, ConfigReader& reader) {
  const json* part = reader.find("text_config");
  json text = part != nullptr ? *part : json::object();
  if (!text.is_object()) {
    throw input_error(reader.where(), "text_config is " + brief(text), "a JSON object");
  }
  text.erase("architectures");
  if (!text.contains("model_type")) text["model_type"] = composite.text_type;
  if (text["model_type"] != composite.text_type) {
    throw input_error(reader.where(), "text_config has model_type " + brief(text["model_type"]),
                      composite.text_type);
  }
  ModelConfig config = parse_config(text, reader.where() + ": text_config");
  config.body = composite.body;
  config.other_parts.assign(composite.other_parts.begin(), composite.other_parts.end());
  config.tied_embeddings = reader.flag("tie_word_embeddings", config.tied_embeddings);
  std::vector<uint32_t> own;
  read_eos(reader, own);
  if (!own.empty()) config.eos_ids = own;
  // What the other parts are, and the tokens that stand for what they give.
  reader.ignore({"vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index",
                 "image_token_index", "boi_token_id", "eoi_token_id", "image_token_id"});
  check_neutral_fields(reader);
  reader.refuse_rest();
  return config;
}

}  // namespace

ModelConfig parse_config(const json& object, std::string_view where) {
  ConfigReader given(object, std::string(where));
  const Class found = read_class(given);
  if (const Composite* composite = find_class(composites(), found)) {
    ModelConfig config = parse_composite(*composite, given);
    config.json = object.dump();
    return config;
  }
  const Family* family = find_class(families(), found);
  if (family == nullptr) refuse_class(given, found);
  json filled = json::parse(family->defaults);
  filled.update(object);
  ConfigReader reader(filled, std::string(where));
  reader.ignore({"architectures", "model_type"});
  ModelConfig config;
  config.model_type = family->model_type;
  config.json = object.dump();
  read_sizes(reader, config);
  config.tied_embeddings = reader.flag("tie_word_embeddings", false);
  read_eos(reader, config.eos_ids);
  family->configure(reader, config);
  check_neutral_fields(reader);
  complete(reader, config);
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
