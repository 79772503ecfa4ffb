#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "io/atomic_file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/config_reader.h"
#include "wgrad/error.h"

namespace wgrad::model {

using nlohmann::json;

namespace {

constexpr std::string_view kWeightsFile = "adapter_model.safetensors";
constexpr std::string_view kConfigFile = "adapter_config.json";
constexpr std::string_view kPrefix = "base_model.model.";

/// PEFT spells all-linear out as every module's full name; what stands after the layer's number
/// names the projection. load() finds a layer that is left out.
std::string without_layer(const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return name;
  const size_t end = name.find_first_not_of("0123456789", kLayers.size());
  const bool numbered = end != std::string::npos && end > kLayers.size() && name[end] == '.';
  return numbered ? name.substr(end + 1) : name;
}

std::vector<std::string> read_targets(ConfigReader& reader) {
  const json* value = reader.find("target_modules");
  if (value == nullptr) {
    throw input_error(reader.where(), "target_modules is missing", "a list of module names");
  }
  if (*value == "all-linear") return {"all-linear"};
  const auto is_name = [](const json& name) { return name.is_string(); };
  if (!value->is_array() || value->empty() || !std::all_of(value->begin(), value->end(), is_name)) {
    throw input_error(reader.where(), "target_modules is " + brief(*value),
                      "a list of module names, or \"all-linear\"");
  }
  std::vector<std::string> targets;
  for (const json& name : *value) {
    const std::string target = without_layer(name.get<std::string>());
    if (std::find(targets.begin(), targets.end(), target) == targets.end()) {
      targets.push_back(target);
    }
  }
  return targets;
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
void check_unsupported(ConfigReader& reader) {
  for (const char* flag :
       {"use_dora", "lora_bias", "use_qalora", "fan_in_fan_out", "use_bdlora", "tie_adapters"}) {
    reader.must_be(flag, false);
  }
  for (const char* field :
       {"modules_to_save", "layers_to_transform", "layers_pattern", "exclude_modules",
        "trainable_token_indices", "layer_replication", "alora_invocation_tokens",
        "target_parameters", "arrow_config", "megatron_config"}) {
    const json* value = reader.find(field);
    if (value != nullptr && !value->empty()) reader.must_be(field, nullptr);
  }
  for (const char* field : {"rank_pattern", "alpha_pattern"}) reader.must_be(field, json::object());
  reader.must_be("bias", "none");
  check_initialisation(reader);
  // How the matrices were made at first, and who wrote them: no matter once they are stored.
  reader.ignore({"auto_mapping", "base_model_name_or_path", "revision", "inference_mode",
                 "task_type", "megatron_core", "loftq_config", "eva_config", "corda_config",
                 "lora_ga_config", "velora_config", "runtime_config", "ephemeral_gpu_offload",
                 "peft_version", "qalora_group_size", "ensure_weight_tying"});
}

json config_json(const LoraConfig& lora, std::span<const Projection> adapted,
                 const std::string& base_model_name) {
  json targets = json::array();
  for (const Projection p : adapted) {
    const std::string_view name = projection_name(p);
    targets.push_back(name.substr(name.find('.') + 1));
  }
  // PEFT's alpha is an integer where it can be.
  const bool whole = lora.alpha == std::floor(lora.alpha) && lora.alpha < 0x1p31;
  const json alpha = whole ? json(static_cast<int64_t>(lora.alpha)) : json(lora.alpha);
  return {{"alora_invocation_tokens", nullptr},
          {"alpha_pattern", json::object()},
          {"arrow_config", nullptr},
          {"auto_mapping", nullptr},
          {"base_model_name_or_path", base_model_name},
          {"bias", "none"},
          {"corda_config", nullptr},
          {"ensure_weight_tying", false},
          {"eva_config", nullptr},
          {"exclude_modules", nullptr},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"layer_replication", nullptr},
          {"layers_pattern", nullptr},
          {"layers_to_transform", nullptr},
          {"loftq_config", json::object()},
          {"lora_alpha", alpha},
          {"lora_bias", false},
          {"lora_dropout", lora.dropout},
          {"megatron_config", nullptr},
          {"megatron_core", "megatron.core"},
          {"modules_to_save", nullptr},
          {"peft_type", "LORA"},
          {"r", lora.rank},
          {"rank_pattern", json::object()},
          {"revision", nullptr},
          {"target_modules", targets},
          {"target_parameters", nullptr},
          {"task_type", "CAUSAL_LM"},
          {"trainable_token_indices", nullptr},
          {"use_dora", false},
          {"use_qalora", false},
          {"use_rslora", lora.rslora}};
}

/// That the file has these tensors, and no others.
void check_tensors(const io::TensorSource& source, const std::vector<Parameters::Spec>& specs) {
  constexpr std::string_view kOtherModel =
      "use the adapter with the model that it was trained on, and its own adapter_config.json";
  std::set<std::string> expected;
  for (const Parameters::Spec& spec : specs) expected.insert(std::string(kPrefix) + spec.name);
  for (const std::string& name : source.names()) {
    if (expected.contains(name)) continue;
    throw input_error(source.where(), fmt::format("unexpected tensor {}", name),
                      "the matrices of the model's adapted layers", kOtherModel);
  }
  for (const Parameters::Spec& spec : specs) {
    const std::string name = std::string(kPrefix) + spec.name;
    const io::TensorView* view = source.find(name);
    if (view == nullptr) {
      throw input_error(source.where(), fmt::format("tensor {} is missing", name),
                        "the matrices of all adapted layers of the model", kOtherModel);
    }
    if (view->shape != spec.shape) {
      throw input_error(view->where, fmt::format("the shape is {}", io::shape_text(view->shape)),
                        io::shape_text(spec.shape), kOtherModel);
    }
    if (view->type != io::FileType::kF32 && view->type != io::FileType::kF16 &&
        view->type != io::FileType::kBF16) {
      throw input_error(view->where, fmt::format("the type is {}", io::file_type_name(view->type)),
                        "F32, F16 or BF16", "save the adapter again with PEFT");
    }
  }
}

}  // namespace

LoraConfig read_lora_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kConfigFile;
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
  lora.targets = read_targets(reader);
  check_unsupported(reader);
  reader.refuse_rest();
  return lora;
}

Adapter Adapter::load(Context& ctx, const ModelConfig& config,
                      const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    throw input_error(folder.string(), "no such folder", "an adapter's folder as PEFT writes it");
  }
  const LoraConfig lora = read_lora_config(folder);
  if (!std::filesystem::exists(folder / kWeightsFile, error) &&
      std::filesystem::exists(folder / "adapter_model.bin", error)) {
    throw input_error(folder.string(), "has its weights in adapter_model.bin",
                      fmt::format("expected {}", kWeightsFile),
                      "load it with PEFT and save it anew with save_pretrained, which writes "
                      "safetensors");
  }
  const auto source = io::open_safetensors(folder / kWeightsFile);
  // Before anything is allocated: only a rank that the file has can be trusted.
  check_tensors(*source, matrices(config, lora));
  Adapter adapter(ctx, config, lora);
  std::vector<float> values;
  for (const Parameter& parameter : adapter.parameters_.parameters()) {
    const io::TensorView& view = *source->find(std::string(kPrefix) + parameter.name);
    values.resize(static_cast<size_t>(parameter.value.size()));
    source->read_f32(view, 0, view.rows(), values);
    ctx.upload<float>(parameter.value, values);
  }
  return adapter;
}

void Adapter::save(Context& ctx, const std::filesystem::path& folder,
                   const std::string& base_model_name) const {
  std::vector<io::TensorToWrite> tensors;
  for (const Parameter& parameter : parameters_.parameters()) {
    tensors.push_back({.name = std::string(kPrefix) + parameter.name,
                       .type = io::FileType::kF32,
                       .shape = parameter.value.shape(),
                       .produce = [&ctx, &parameter](const io::ByteSink& sink) {
                         const std::vector<float> values = ctx.read<float>(parameter.value);
                         sink(std::as_bytes(std::span<const float>(values)));
                       }});
  }
  io::write_safetensors(folder / kWeightsFile, std::move(tensors), {{"format", "pt"}});
  io::write_file_atomically(folder / kConfigFile,
                            config_json(lora_, adapted_, base_model_name).dump(2) + "\n");
}

}  // namespace wgrad::model
