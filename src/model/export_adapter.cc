#include <fmt/format.h>

#include "io/gguf_names.h"
#include "io/gguf_writer.h"
#include "model/adapter.h"
#include "model/export.h"
#include "model/gguf_metadata.h"
#include "model/gguf_tensor.h"
#include "wgrad/error.h"

namespace wgrad::model {

namespace fs = std::filesystem;

namespace {

GgufType adapter_type(GgufType type) {
  if (type == GgufType::kKeep) return GgufType::kF32;
  if (type == GgufType::kQ4_0 || type == GgufType::kQ4_K) {
    throw input_error("type", "4-bit types", "f32, f16, bf16 or q8_0 for an adapter alone",
                      "leave --type out, or merge the adapter");
  }
  return type;
}

class AdapterExporter {
 public:
  AdapterExporter(const fs::path& base, const fs::path& adapter, GgufType type)
      : config_(read_config(base)),
        architecture_(gguf_architecture(config_, base.string())),
        context_(Context::cpu({})),
        adapter_(Adapter::load(*context_, config_, adapter)),
        types_(adapter_type(type), config_.layers, false) {
    writer_.text("general.architecture", architecture_.name);
    writer_.text("general.type", "adapter");
    writer_.text("general.name", fs::weakly_canonical(adapter).filename().string());
    writer_.text("adapter.type", "lora");
    check_form(adapter.string());
    writer_.fraction("adapter.lora.alpha", alpha_of(0));
    writer_.number("general.file_type", static_cast<uint32_t>(types_.file_type()));
    writer_.number("general.quantization_version", kQuantizationVersion);
  }

  ExportSummary write(const fs::path& out) {
    for (size_t i = 0; i < adapter_.modules().size(); ++i) {
      add(*adapter_.module_pair(i).a, 1.0f);
      add(*adapter_.module_pair(i).b, alpha_of(i) / alpha_of(0));
    }
    ExportSummary summary{.bytes = writer_.file_size(), .notes = types_.notes()};
    writer_.write(out);
    return summary;
  }

 private:
  /// What the form has no place for.
  void check_form(const std::string& where) const {
    const char* seen = nullptr;
    if (adapter_.lora().dora) seen = "DoRA";
    if (adapter_.saves_modules()) seen = "modules that are trained whole";
    if (adapter_.embedding()) seen = "an adapted embedding";
    if (adapter_.output() && config_.tied_embeddings) seen = "an adapted output layer that is tied";
    if (seen == nullptr) return;
    throw input_error(where, seen, "matrices of linear layers that the model has by themselves",
                      "merge the adapter into its base");
  }

  /// A reader's scale is alpha / rank, with one alpha for all modules.
  float alpha_of(size_t module) const {
    return adapter_.modules()[module].scale * static_cast<float>(adapter_.modules()[module].rank);
  }

  /// MODULE.lora_A.weight or MODULE.lora_B.weight, times `factor`.
  void add(const Parameter& parameter, float factor) {
    constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
    const bool is_b = parameter.name.ends_with(kB);
    const std::string module = parameter.name.substr(0, parameter.name.size() - kA.size());
    const auto base = io::gguf_tensor_name(module + ".weight", architecture_.name);
    if (!base || !(is_b || parameter.name.ends_with(kA))) {
      throw input_error(parameter.name, "this matrix has no name in GGUF",
                        "matrices of the linear layers", "merge the adapter into its base");
    }
    const int64_t head = is_b ? architecture_.reordered_head(config_, module) : 0;
    io::TensorView view;
    view.shape = parameter.value.shape();
    const std::string name = *base + (is_b ? ".lora_b" : ".lora_a");
    const io::FileType type = types_.choose(name, view);
    writer_.tensor({.name = name,
                    .type = type,
                    .shape = view.shape,
                    .produce = [this, &parameter, type, head, factor](const io::ByteSink& sink) {
                      std::vector<float> values = context_->read<float>(parameter.value);
                      if (factor != 1.0f) {
                        for (float& x : values) x *= factor;
                      }
                      const int64_t width = parameter.value.dim(1);
                      if (head > 0) values = reordered_rows(values, width, head);
                      sink_rows(type, values, width, parameter.name, sink);
                    }});
  }

  ModelConfig config_;
  const GgufArchitecture& architecture_;
  std::unique_ptr<Context> context_;
  Adapter adapter_;
  GgufTypes types_;
  io::GgufWriter writer_;
};

}  // namespace

ExportSummary export_adapter_gguf(const fs::path& base, const fs::path& adapter, GgufType type,
                                  const fs::path& out) {
  refuse_existing(out);
  return AdapterExporter(base, adapter, type).write(out);
}

}  // namespace wgrad::model
