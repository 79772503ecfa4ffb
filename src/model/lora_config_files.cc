#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "io/json.h"
#include "model/config_reader.h"
#include "model/lora_config.h"
#include "wgrad/error.h"

namespace wgrad::model {

using nlohmann::json;

namespace {

bool all_strings(const json& value) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const json& name) { return name.is_string(); });
}

[[noreturn]] void wrong(const ConfigReader& reader, std::string_view field, const json& value,
                        std::string_view expected) {
  throw input_error(reader.where(), fmt::format("{} is {}", field, brief(value)), expected);
}

/// A list of names, or one text.
struct Names {
  std::vector<std::string> list;
  std::string text;
};

Names read_names(ConfigReader& reader, std::string_view field) {
  const json* value = reader.find(field);
  if (value == nullptr) return {};
  if (value->is_string()) return {{}, value->get<std::string>()};
  if (!all_strings(*value)) wrong(reader, field, *value, "a list of names, or a text");
  return {value->get<std::vector<std::string>>(), {}};
}

std::vector<std::string> read_list(ConfigReader& reader, std::string_view field) {
  Names names = read_names(reader, field);
  if (!names.text.empty()) names.list = {names.text};
  return std::move(names.list);
}

void read_targets(ConfigReader& reader, LoraConfig& lora) {
  Names targets = read_names(reader, "target_modules");
  if (targets.list.empty() && targets.text.empty()) {
    throw input_error(reader.where(), "target_modules names nothing",
                      "a list of module names, \"all-linear\" or a regular expression");
  }
  std::string lower = targets.text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower == "all-linear") {
    lora.targets = {lower};
  } else {
    lora.targets = std::move(targets.list);
    lora.target_pattern = std::move(targets.text);
  }
  Names exclude = read_names(reader, "exclude_modules");
  lora.exclude = std::move(exclude.list);
  lora.exclude_pattern = std::move(exclude.text);
}

void read_layers(ConfigReader& reader, LoraConfig& lora) {
  lora.layer_lists = read_list(reader, "layers_pattern");
  const json* value = reader.find("layers_to_transform");
  if (value == nullptr) {
    if (lora.layer_lists.empty()) return;
    throw input_error(reader.where(), "layers_pattern without layers_to_transform",
                      "both, or neither");
  }
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& layer : list) {
    constexpr int64_t kMost = int64_t{1} << 20;
    const bool number = layer.is_number_integer() && layer >= 0 && layer <= kMost;
    if (!number) wrong(reader, "layers_to_transform", *value, "numbers of blocks");
    lora.layers.push_back(layer.get<int64_t>());
  }
  if (lora.layers.empty() || lora.target_pattern.empty()) return;
  wrong(reader, "layers_to_transform", *value,
        "nothing where target_modules is a regular expression");
}

template <typename T>
void read_pattern(ConfigReader& reader, std::string_view field, std::map<std::string, T>& to) {
  const json* value = reader.find(field);
  if (value == nullptr) return;
  const bool whole = std::is_integral_v<T>;
  if (!value->is_object()) wrong(reader, field, *value, "an object of names and numbers");
  for (const auto& [name, number] : value->items()) {
    const bool fits = whole ? number.is_number_integer() && number >= 1 && number <= 1 << 20
                            : number.is_number() && number.template get<double>() > 0;
    if (!fits) wrong(reader, field, *value, "names with a number greater than 0 each");
    to[name] = number.template get<T>();
  }
}

/// Some ways to initialise also change the base's weights, so such an adapter needs another base.
void check_initialisation(ConfigReader& reader) {
  const json* value = reader.find("init_lora_weights");
  if (value == nullptr || value->is_boolean()) return;
  for (const char* harmless : {"gaussian", "orthogonal", "eva"}) {
    if (*value == harmless) return;
  }
  throw input_error(reader.where(), "init_lora_weights is " + brief(*value),
                    "true, false, gaussian, orthogonal or eva: others change the base's weights");
}

/// Settings that change what an adapter computes and that wgrad does not have.
void check_unsupported(ConfigReader& reader, const LoraConfig& lora) {
  for (const char* flag :
       {"lora_bias", "use_qalora", "fan_in_fan_out", "use_bdlora", "tie_adapters"}) {
    reader.must_be(flag, false);
  }
  for (const char* field :
       {"trainable_token_indices", "layer_replication", "alora_invocation_tokens",
        "target_parameters", "arrow_config", "megatron_config", "monteclora_config"}) {
    const json* value = reader.find(field);
    if (value != nullptr && !value->empty()) reader.must_be(field, nullptr);
  }
  reader.must_be("bias", "none");
  // It ties the adapters of the embedding and the output layer; others are as without it.
  if (!lora.target_pattern.empty() || !lora.modules_to_save.empty()) {
    reader.must_be("ensure_weight_tying", false);
  }
  for (const std::string& name : lora.targets) {
    if (name.ends_with("embed_tokens") || name.ends_with("lm_head")) {
      reader.must_be("ensure_weight_tying", false);
    }
  }
  check_initialisation(reader);
  // How the matrices were made at first, and who wrote them: no matter once they are stored.
  reader.ignore({"auto_mapping", "base_model_name_or_path", "revision", "inference_mode",
                 "task_type", "megatron_core", "loftq_config", "eva_config", "corda_config",
                 "lora_ga_config", "velora_config", "runtime_config", "ephemeral_gpu_offload",
                 "peft_version", "qalora_group_size", "ensure_weight_tying"});
}

json names_or_null(const std::vector<std::string>& names) {
  return names.empty() ? json(nullptr) : json(names);
}

/// PEFT's alpha is an integer where it can be.
json alpha_json(double alpha) {
  const bool whole = alpha == std::floor(alpha) && alpha < 0x1p31;
  return whole ? json(static_cast<int64_t>(alpha)) : json(alpha);
}

/// all-linear is spelled out: as a list it may stand beside layers_to_transform.
json targets_json(const LoraConfig& lora, const std::vector<AdaptedModule>& modules) {
  if (!lora.target_pattern.empty()) return lora.target_pattern;
  std::vector<std::string> names;
  const auto add = [&](std::string name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& target : lora.targets) {
    if (target != "all-linear") {
      add(target);
      continue;
    }
    for (const AdaptedModule& module : modules) {
      if (module.kind != AdaptedModule::Kind::kLinear) continue;
      add(module.name.substr(module.name.rfind('.') + 1));
    }
  }
  return names;
}

/// The adapter_config.json of a folder that PEFT or a run wrote.
std::filesystem::path config_of(const std::filesystem::path& folder) {
  constexpr std::string_view kExpected = "an adapter's folder as PEFT writes it";
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    const bool is_file = std::filesystem::exists(folder, error);
    throw input_error(folder.string(), is_file ? "is a file" : "no such folder", kExpected,
                      folder.extension() == ".gguf"
                          ? "give the folder that the GGUF file was exported from; the file itself "
                            "is for llama.cpp's --lora"
                      : is_file ? "give the folder that holds it"
                                : "check the path");
  }
  const std::filesystem::path path = folder / "adapter_config.json";
  if (std::filesystem::symlink_status(path, error).type() != std::filesystem::file_type::not_found)
    return path;
  const bool whole = std::filesystem::exists(folder / "config.json", error);
  throw input_error(folder.string(),
                    whole ? "holds a whole model, no adapter" : "has no adapter_config.json",
                    kExpected,
                    whole ? "give it as --model, without --adapter"
                          : "check the path: it is the --out of a run that has ended");
}

}  // namespace

std::string lora_config_text(const LoraConfig& lora, const std::vector<AdaptedModule>& modules,
                             const std::string& base_model_name) {
  json alphas = json::object();
  for (const auto& [name, alpha] : lora.alpha_pattern) alphas[name] = alpha_json(alpha);
  const json exclude =
      lora.exclude_pattern.empty() ? names_or_null(lora.exclude) : json(lora.exclude_pattern);
  const json config = {
      {"alora_invocation_tokens", nullptr},
      {"alpha_pattern", alphas},
      {"arrow_config", nullptr},
      {"auto_mapping", nullptr},
      {"base_model_name_or_path", base_model_name},
      {"bias", "none"},
      {"corda_config", nullptr},
      {"ensure_weight_tying", false},
      {"eva_config", nullptr},
      {"exclude_modules", exclude},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"init_lora_weights", true},
      {"layer_replication", nullptr},
      {"layers_pattern", names_or_null(lora.layer_lists)},
      {"layers_to_transform", lora.layers.empty() ? json(nullptr) : json(lora.layers)},
      {"loftq_config", json::object()},
      {"lora_alpha", alpha_json(lora.alpha)},
      {"lora_bias", false},
      {"lora_dropout", lora.dropout},
      {"megatron_config", nullptr},
      {"megatron_core", "megatron.core"},
      {"modules_to_save", names_or_null(lora.modules_to_save)},
      {"peft_type", "LORA"},
      {"r", lora.rank},
      {"rank_pattern", json(lora.rank_pattern)},
      {"revision", nullptr},
      {"target_modules", targets_json(lora, modules)},
      {"target_parameters", nullptr},
      {"task_type", "CAUSAL_LM"},
      {"trainable_token_indices", nullptr},
      {"use_dora", lora.dora},
      {"use_qalora", false},
      {"use_rslora", lora.rslora}};
  return config.dump(2) + "\n";
}

LoraConfig read_lora_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = config_of(folder);
  const json object = io::read_json_file(path);
  ConfigReader reader(object, path.string());
  if (const std::string type = reader.text("peft_type", ""); type != "LORA") {
    throw input_error(path.string(), fmt::format("peft_type is \"{}\"", type), "\"LORA\"");
  }
  LoraConfig lora;
  lora.rank = reader.size("r", int64_t{1} << 20);
  lora.alpha = reader.positive("lora_alpha");
  if (const json* value = reader.find("lora_dropout")) {
    lora.dropout = value->is_number() ? value->get<double>() : -1.0;
    if (!(lora.dropout >= 0 && lora.dropout < 1)) {
      throw input_error(path.string(), "lora_dropout is " + brief(*value), "a number in [0, 1)");
    }
  }
  lora.rslora = reader.flag("use_rslora", false);
  lora.dora = reader.flag("use_dora", false);
  read_targets(reader, lora);
  read_layers(reader, lora);
  read_pattern(reader, "rank_pattern", lora.rank_pattern);
  read_pattern(reader, "alpha_pattern", lora.alpha_pattern);
  lora.modules_to_save = read_list(reader, "modules_to_save");
  check_unsupported(reader, lora);
  reader.refuse_rest();
  return lora;
}

}  // namespace wgrad::model
