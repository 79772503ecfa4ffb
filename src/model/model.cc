#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "model/read_rows.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

/// Tensors that some checkpoints carry and that do not change the result.
bool is_harmless(const ModelConfig& config, const std::string& name) {
  if (name == "lm_head.weight") return config.tied_embeddings;
  const auto holds = [&](const std::string& part) {
    return name.starts_with(part + ".") || name.starts_with("model." + part + ".");
  };
  if (std::ranges::any_of(config.other_parts, holds)) return true;
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".attn.bias");
}

void refuse_unknown_tensors(const ModelConfig& config, const io::TensorSource& source) {
  std::set<std::string> known;
  for (const Parameters::Spec& spec : checkpoint_tensors(config)) known.insert(spec.name);
  for (const std::string& name : source.names()) {
    if (known.contains(name) || is_harmless(config, name)) continue;
    throw input_error(
        source.where(), fmt::format("unknown tensor {}", name),
        fmt::format("the tensors of a {} model as its config describes it", config.model_type));
  }
}

void refuse_other_types(const io::TensorView& tensor) {
  const bool floating = tensor.type == io::FileType::kF32 || tensor.type == io::FileType::kF16 ||
                        tensor.type == io::FileType::kBF16 || io::is_quantized(tensor.type);
  if (floating) return;
  throw input_error(tensor.where, fmt::format("the type is {}", io::file_type_name(tensor.type)),
                    "F32, F16, BF16 or one of GGUF's quantised types",
                    "convert the checkpoint to one of these");
}

/// Goes through a model's tensors: those that are among the parameters become them, the others are
/// loaded, or left as they are.
class Loader {
 public:
  Loader(Context& ctx, Model& model, const LoadOptions& options)
      : ctx_(ctx), model_(model), source_(*model.source), options_(options) {}

  void load() {
    const std::vector<Parameters::Spec> specs = checkpoint_tensors(config());
    for (const Parameters::Spec& spec : specs) {
      refuse_other_types(source_.get(spec.name, spec.shape));
    }
    if (options_.trainable) {
      model_.parameters = Parameters(ctx_, specs, "weights");
      for (const Parameter& p : model_.parameters.parameters()) {
        upload_tensor(ctx_, source_, source_.get(p.name), p.value);
      }
    }
    model_.layers.resize(static_cast<size_t>(config().layers));
    visit(model_.parameters, config().tied_embeddings);
  }

  void replace(const Parameters& parameters) {
    loads_ = false;
    visit(parameters, false);
  }

 private:
  void visit(const Parameters& parameters, bool tied) {
    parameters_ = &parameters;
    const bool exact = options_.precision == ops::WeightPrecision::kF32;
    const auto table = exact ? ops::WeightPrecision::kF32 : ops::WeightPrecision::kCompute;
    matrix(config().table_name(), table, model_.embedding, model_.grad_embedding);
    for (int64_t i = 0; i < config().layers; ++i) layer(i);
    norm(config().body + ".norm", model_.final_norm);
    if (tied) {
      model_.output = model_.embedding;
      model_.grad_output = model_.grad_embedding;
    } else {
      matrix("lm_head", table, model_.output, model_.grad_output);
    }
  }

  const ModelConfig& config() const { return model_.config; }

  void layer(int64_t index) {
    Layer& layer = model_.layers[static_cast<size_t>(index)];
    const std::string prefix = config().layer_name(index) + ".";
    for (const NormSpec& spec : config().norms()) {
      norm(prefix + std::string(spec.name), layer[spec.kind]);
    }
    for (const Projection p : config().projections()) {
      Linear linear = parts_of(p).size() == 1 ? layer[p] : Linear();
      const std::string name = config().module_name(index, p);
      matrix(name, options_.precision, linear.weight, linear.grad_weight);
      if (config().has_bias(p)) vector(name + ".bias", linear.bias, linear.grad_bias);
      if (linear.weight) split(linear, p, layer);
    }
  }

  /// Gives each product that the stored layer holds its rows.
  void split(const Linear& stored, Projection projection, Layer& layer) {
    const std::span<const Projection> parts = parts_of(projection);
    if (parts.size() == 1) {
      layer[projection] = stored;
      return;
    }
    int64_t row = 0;
    for (const Projection p : parts) {
      const int64_t end = row + config().out_features(p);
      const auto rows = [&](const Tensor& of) { return of ? of.rows(row, end) : Tensor(); };
      Linear& linear = layer[p];
      linear.weight = ops::weight_rows(ctx_, stored.weight, row, end);
      linear.bias = rows(stored.bias);
      linear.grad_weight = rows(stored.grad_weight);
      linear.grad_bias = rows(stored.grad_bias);
      if (linear.bias) check_binding(ctx_, row, stored.weight.name + ".bias");
      if (linear.grad_weight) {
        check_binding(ctx_, row * config().in_features(p), stored.weight.name);
      }
      row = end;
    }
  }

  void norm(const std::string& module, Norm& norm) {
    vector(module + ".weight", norm.weight, norm.grad);
  }

  void vector(const std::string& name, Tensor& value, Tensor& grad) {
    if (const Parameter* parameter = parameters_->find(name)) {
      value = parameter->value;
      grad = parameter->grad;
      return;
    }
    if (!loads_) return;
    const io::TensorView& view = source_.get(name);
    value = ctx_.allocate(view.shape, DType::kF32, "weights/" + name);
    upload_tensor(ctx_, source_, view, value);
  }

  void matrix(const std::string& module, ops::WeightPrecision precision, ops::Weight& weight,
              Tensor& grad) {
    const std::string name = module + ".weight";
    if (const Parameter* parameter = parameters_->find(name)) {
      weight = ops::weight_from(parameter->value, name);
      grad = parameter->grad;
      return;
    }
    if (!loads_) return;
    const io::TensorView& view = source_.get(name);
    if (lies_as_needed(view, precision)) {
      weight = ops::weight_from(
          ctx_.wrap_host(view.bytes.data(), view.shape, DType::kF32, model_.source), name);
      return;
    }
    weight = ops::load_weight(ctx_, name, view.shape[0], view.shape[1], precision,
                              [&](int64_t begin, int64_t end, std::span<float> out) {
                                read_rows(source_, view, begin, end, out);
                              });
    source_.release(view);
  }

  /// The CPU multiplies f32 weights where they are mapped.
  bool lies_as_needed(const io::TensorView& view, ops::WeightPrecision precision) const {
    return ctx_.modelled() == DeviceKind::kCpu && precision != ops::WeightPrecision::kNF4 &&
           view.type == io::FileType::kF32 && view.in_order &&
           reinterpret_cast<uintptr_t>(view.bytes.data()) % alignof(float) == 0;
  }

  Context& ctx_;
  Model& model_;
  const io::TensorSource& source_;
  const LoadOptions& options_;
  const Parameters* parameters_ = nullptr;
  bool loads_ = true;
};

}  // namespace

std::vector<Parameters::Spec> checkpoint_tensors(const ModelConfig& config) {
  std::vector<Parameters::Spec> specs;
  const auto add = [&](std::string name, Shape shape) {
    specs.push_back({std::move(name), std::move(shape)});
  };
  add(config.table_name() + ".weight", {config.vocab_size, config.hidden_size});
  for (int64_t i = 0; i < config.layers; ++i) {
    for (const Projection p : config.projections()) {
      const std::string name = config.module_name(i, p);
      add(name + ".weight", {config.out_features(p), config.in_features(p)});
      if (config.has_bias(p)) add(name + ".bias", {config.out_features(p)});
    }
    for (const NormSpec& norm : config.norms()) {
      add(fmt::format("{}.{}.weight", config.layer_name(i), norm.name), {norm.size});
    }
  }
  add(config.body + ".norm.weight", {config.hidden_size});
  if (!config.tied_embeddings) add("lm_head.weight", {config.vocab_size, config.hidden_size});
  return specs;
}

int64_t Model::weight_bytes() const {
  int64_t bytes = embedding.bytes() + final_norm.weight.bytes();
  if (!config.tied_embeddings) bytes += output.bytes();
  for (const Layer& layer : layers) {
    for (const Linear& linear : layer.linears) {
      bytes += linear.weight.bytes() + (linear.bias ? linear.bias.bytes() : 0);
    }
    for (const Norm& norm : layer.norms) {
      if (norm.weight) bytes += norm.weight.bytes();
    }
  }
  return bytes;
}

Model load_model(Context& ctx, ModelConfig config, std::shared_ptr<const io::TensorSource> source,
                 const LoadOptions& options) {
  if (options.trainable && options.precision != ops::WeightPrecision::kF32) {
    throw runtime_failure("load_model", "trainable weights in a reduced precision",
                          "WeightPrecision::kF32");
  }
  Model model;
  model.config = std::move(config);
  model.source = std::move(source);
  refuse_unknown_tensors(model.config, *model.source);
  Loader(ctx, model, options).load();
  return model;
}

Model load_model(Context& ctx, const std::filesystem::path& path, const LoadOptions& options) {
  ModelConfig config = read_config(path);
  return load_model(ctx, std::move(config), io::open_checkpoint(path), options);
}

Model replaced(Context& ctx, Model model, const Parameters& parameters) {
  Loader(ctx, model, LoadOptions{}).replace(parameters);
  return model;
}

}  // namespace wgrad::model
