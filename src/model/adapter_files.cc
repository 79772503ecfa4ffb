#include <fmt/format.h>

#include <cmath>
#include <set>

#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/read_rows.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

constexpr std::string_view kWeightsFile = "adapter_model.safetensors";
constexpr std::string_view kConfigFile = "adapter_config.json";
constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kOtherModel =
    "use the adapter with the model that it was trained on, and its own adapter_config.json";

/// An embedding's A lies on the device as a table, a row a token, and in files across.
bool is_transposed(const std::string& name) { return name.ends_with(".lora_embedding_A"); }

Shape stored_shape(const Parameters::Spec& spec) {
  return is_transposed(spec.name) ? Shape{spec.shape[1], spec.shape[0]} : spec.shape;
}

std::vector<float> transposed(const std::vector<float>& values, const Shape& shape) {
  const auto rows = static_cast<size_t>(shape[0]), columns = static_cast<size_t>(shape[1]);
  std::vector<float> out(values.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) out[c * rows + r] = values[r * columns + c];
  }
  return out;
}

void check_type(const io::TensorView& view) {
  if (view.type == io::FileType::kF32 || view.type == io::FileType::kF16 ||
      view.type == io::FileType::kBF16) {
    return;
  }
  throw input_error(view.where, fmt::format("the type is {}", io::file_type_name(view.type)),
                    "F32, F16 or BF16", "save the adapter again with PEFT");
}

void check_shape(const io::TensorView& view, const Shape& shape) {
  if (view.shape == shape) return;
  throw input_error(view.where, fmt::format("the shape is {}", io::shape_text(view.shape)),
                    io::shape_text(shape), kOtherModel);
}

/// PEFT stores an adapted embedding or output layer itself too. The model must have the same one,
/// but for the rounding of a narrower type.
void check_same_weight(const io::TensorSource& file, const io::TensorView& view,
                       const io::TensorSource* base, const std::string& name,
                       const std::string& table) {
  check_type(view);
  const io::TensorView* own = base == nullptr ? nullptr : base->find(name);
  if (own == nullptr) own = base == nullptr ? nullptr : base->find(table);
  if (own == nullptr) return;
  check_shape(view, own->shape);
  if (io::is_quantized(own->type)) return;
  const int64_t step = std::max<int64_t>(1, (int64_t{1} << 20) / view.row_size());
  std::vector<float> theirs, ours;
  for (int64_t begin = 0; begin < view.rows(); begin += step) {
    const int64_t end = std::min(view.rows(), begin + step);
    theirs.resize(static_cast<size_t>((end - begin) * view.row_size()));
    ours.resize(theirs.size());
    file.read_f32(view, begin, end, theirs);
    read_rows(*base, *own, begin, end, ours);
    for (size_t i = 0; i < ours.size(); ++i) {
      if (std::abs(theirs[i] - ours[i]) <= 0x1p-8f * std::abs(ours[i]) + 0x1p-24f) continue;
      throw input_error(view.where, "the weight differs from the model's",
                        "the base that the adapter was trained on", kOtherModel);
    }
  }
}

/// That the file has these tensors, and no others.
void check_tensors(const ModelConfig& config, const io::TensorSource& source,
                   const std::vector<Parameters::Spec>& specs,
                   const std::vector<AdaptedModule>& modules, const io::TensorSource* base) {
  std::set<std::string> expected;
  for (const Parameters::Spec& spec : specs) expected.insert(std::string(kPrefix) + spec.name);
  for (const AdaptedModule& module : modules) {
    const std::string name = fmt::format("{}{}.base_layer.weight", kPrefix, module.name);
    const io::TensorView* view = source.find(name);
    if (view == nullptr) continue;
    check_same_weight(source, *view, base, module.name + ".weight",
                      config.table_name() + ".weight");
    expected.insert(name);
  }
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
    check_shape(*view, stored_shape(spec));
    check_type(*view);
  }
}

}  // namespace

Adapter Adapter::load(Context& ctx, const ModelConfig& config, const std::filesystem::path& folder,
                      const io::TensorSource* base) {
  std::error_code error;
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
  Layout layout(config, lora, Unmatched::kIgnore);
  check_tensors(config, *source, layout.tensors, layout.modules, base);
  Adapter adapter(ctx, for_whole_class(config, lora), std::move(layout));
  std::vector<float> values;
  for (const Parameter& parameter : adapter.parameters_.parameters()) {
    const io::TensorView& view = *source->find(std::string(kPrefix) + parameter.name);
    values.resize(static_cast<size_t>(parameter.value.size()));
    source->read_f32(view, 0, view.rows(), values);
    if (is_transposed(parameter.name)) values = transposed(values, view.shape);
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
                       .shape = stored_shape({parameter.name, parameter.value.shape()}),
                       .produce = [&ctx, &parameter](const io::ByteSink& sink) {
                         std::vector<float> values = ctx.read<float>(parameter.value);
                         if (is_transposed(parameter.name)) {
                           values = transposed(values, parameter.value.shape());
                         }
                         sink(std::as_bytes(std::span<const float>(values)));
                       }});
  }
  io::write_safetensors(folder / kWeightsFile, std::move(tensors), {{"format", "pt"}});
  io::write_file_atomically(folder / kConfigFile,
                            lora_config_text(lora_, modules_, base_model_name));
}

}  // namespace wgrad::model
