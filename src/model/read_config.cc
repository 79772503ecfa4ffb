#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/gguf.h"
#include "io/gguf_names.h"
#include "io/json.h"
#include "model/config.h"
#include "model/config_reader.h"
#include "model/families/family.h"
#include "wgrad/error.h"

namespace wgrad::model {

namespace fs = std::filesystem;
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

/// bitsandbytes, AWQ, GPTQ and the like: tensors of forms of their own.
void refuse_quantised(ConfigReader& reader) {
  const json* quantised = reader.find("quantization_config");
  if (quantised == nullptr) return;
  throw input_error(reader.where(),
                    fmt::format("quantization_config is {}: the weights are quantised already",
                                brief(*quantised)),
                    "weights in f32, f16 or bf16, or a .gguf file",
                    "fetch the model that this one was made from; --method qlora makes the 4 bits "
                    "itself");
}

/// Fields that the family has not read.
void check_neutral_fields(ConfigReader& reader) {
  const std::pair<const char*, json> kNeutral[] = {{"hidden_act", "silu"},
                                                   {"hidden_activation", "silu"},
                                                   {"attention_dropout", 0.0},
                                                   {"is_encoder_decoder", false},
                                                   {"add_cross_attention", false},
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
  refuse_quantised(reader);
  check_neutral_fields(reader);
  reader.refuse_rest();
  return config;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

/// "org/name", as models are named where they are published, and no path on this disk.
bool is_hub_name(const std::string& model) {
  const size_t slash = model.find('/');
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  };
  return slash != std::string::npos && slash > 0 && slash + 1 < model.size() && model[0] != '.' &&
         std::count(model.begin(), model.end(), '/') == 1 &&
         std::all_of(model.begin(), model.end(), [&](char c) { return c == '/' || plain(c); }) &&
         !is_there(model.substr(0, slash));
}

/// Why the path is no model, and what to give in its place.
[[noreturn]] void refuse_model(const fs::path& model) {
  constexpr std::string_view kExpected = "a Hugging Face folder or a .gguf file";
  if (is_there(model)) {
    throw input_error(model.string(), "is no .gguf file by its name", kExpected,
                      "give the folder that holds the model's config.json, or rename a GGUF file "
                      "so that it ends in .gguf");
  }
  const std::string name = model.string();
  if (!is_hub_name(name)) throw input_error(name, "no such folder", kExpected, "check the path");
  const std::string folder = name.substr(name.find('/') + 1);
  throw input_error(name, "no such folder", "a path on this disk: wgrad downloads nothing",
                    fmt::format("fetch it with `huggingface-cli download {} --local-dir {}`, then "
                                "give --model {}",
                                name, folder, folder));
}

/// Why the folder has no config.json, and what to give in its place.
[[noreturn]] void refuse_folder(const fs::path& folder) {
  std::string gguf;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".gguf") continue;
    const std::string name = it->path().string();
    if (gguf.empty() || name < gguf) gguf = name;
  }
  if (!gguf.empty()) {
    throw input_error(folder.string(), "has no config.json, but a GGUF file",
                      "a Hugging Face folder, or the .gguf file itself",
                      fmt::format("give --model {}", gguf));
  }
  const bool adapter = is_there(folder / "adapter_config.json");
  throw input_error(folder.string(),
                    adapter ? "has no config.json: it holds an adapter" : "has no config.json",
                    "a Hugging Face folder or a .gguf file",
                    adapter ? "give its base as --model, and this folder as --adapter"
                            : "check the path, and that the whole model was fetched");
}

/// The config.json of a Hugging Face folder.
fs::path config_of(const fs::path& model) {
  std::error_code error;
  if (!fs::is_directory(model, error)) refuse_model(model);
  const fs::path file = model / "config.json";
  if (!is_there(file)) refuse_folder(model);
  return file;
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
  refuse_quantised(reader);
  check_neutral_fields(reader);
  complete(reader, config);
  reader.refuse_rest();
  return config;
}

ModelConfig read_config(const std::filesystem::path& model) {
  if (model.extension() == ".gguf") {
    return parse_config(io::gguf_config_json(io::GgufFile::open(model)), model.string());
  }
  const fs::path file = config_of(model);
  ModelConfig config = parse_config(io::read_json_file(file), file.string());
  const fs::path generation = model / "generation_config.json";
  if (is_there(generation)) {
    const json object = io::read_json_file(generation);
    ConfigReader reader(object, generation.string());
    read_eos(reader, config.eos_ids);
  }
  return config;
}

}  // namespace wgrad::model
