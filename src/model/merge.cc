#include "model/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "io/atomic_file.h"
#include "model/checkpoint_writer.h"
#include "ops/dora.h"
#include "ops/matmul.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

/// What an adapter makes of a weight, a few rows at a time: saved modules in place of the stored
/// ones, W + scale B A, and with DoRA each of its rows brought to its length.
class AddAdapter : public CheckpointEdits {
 public:
  AddAdapter(Context& ctx, const ModelConfig& config, const Adapter& adapter) : ctx_(ctx) {
    for (const AdaptedModule& module : adapter.modules()) {
      const LoraPair& pair = adapter.module_pair(pairs_.size());
      const bool table = module.kind == AdaptedModule::Kind::kEmbedding;
      pairs_[module.name + ".weight"] = {pair, table};
    }
    for (const Parameters::Spec& spec : saved_tensors(config, adapter.lora(), Unmatched::kIgnore)) {
      saved_[spec.name] = adapter.parameters().find(spec.name)->value;
    }
    unties_ = config.tied_embeddings &&
              (changes("lm_head.weight") || changes(config.table_name() + ".weight"));
  }

  bool changes(const std::string& name) const override {
    return pairs_.contains(name) || saved_.contains(name);
  }
  bool unties() const override { return unties_; }

  void apply(const io::TensorView& tensor, int64_t begin, int64_t end,
             std::span<float> rows) override {
    const int64_t width = tensor.row_size();
    if (const auto saved = saved_.find(tensor.name); saved != saved_.end()) {
      ctx_.read(saved->second.flat(begin * width, (end - begin) * width),
                std::as_writable_bytes(rows));
      return;
    }
    const auto& [pair, table] = pairs_.at(tensor.name);
    const Tensor weight = ctx_.allocate({end - begin, width}, DType::kF32, "merge");
    float* values = weight.data<float>();
    std::copy(rows.begin(), rows.end(), values);
    const Tensor& left = table ? pair.a->value : pair.b->value;
    ops::matmul(ctx_, table ? ops::MatmulOp::kNT : ops::MatmulOp::kNN, left.rows(begin, end),
                table ? pair.b->value : pair.a->value, weight,
                {.alpha = pair.scale, .accumulate = true});
    std::copy(values, values + rows.size(), rows.begin());
    if (pair.magnitude == nullptr) return;
    const Tensor norm = ctx_.allocate({end - begin}, DType::kF32, "merge");
    const Tensor factor = ctx_.allocate({end - begin}, DType::kF32, "merge");
    ops::dora_row_factors(ctx_, weight, pair.magnitude->value.rows(begin, end), {norm, factor});
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] *= factor.data<float>()[i / static_cast<size_t>(width)];
    }
  }

 private:
  Context& ctx_;
  std::map<std::string, std::pair<LoraPair, bool>> pairs_;  ///< and whether it is the embedding's
  std::map<std::string, Tensor> saved_;
  bool unties_ = false;
};

/// The trained values in place of the stored ones.
class ReplaceWeights : public CheckpointEdits {
 public:
  ReplaceWeights(Context& ctx, const Model& model) : ctx_(ctx), model_(model) {}

  bool changes(const std::string& name) const override { return parameter(name) != nullptr; }

  void apply(const io::TensorView& tensor, int64_t begin, int64_t end,
             std::span<float> rows) override {
    const int64_t width = tensor.row_size();
    const Tensor value = parameter(tensor.name)->value.flat(begin * width, (end - begin) * width);
    ctx_.read(value, std::as_writable_bytes(rows));
  }

 private:
  const Parameter* parameter(const std::string& name) const {
    // Some files hold a tied output layer a second time.
    const bool tied = name == "lm_head.weight" && model_.config.tied_embeddings;
    return model_.parameters.find(tied ? model_.config.table_name() + ".weight" : name);
  }

  Context& ctx_;
  const Model& model_;
};

}  // namespace

std::unique_ptr<CheckpointEdits> adapter_edits(Context& ctx, const ModelConfig& config,
                                               const Adapter& adapter) {
  return std::make_unique<AddAdapter>(ctx, config, adapter);
}

int64_t merge_adapter(const std::filesystem::path& base,
                      const std::filesystem::path& adapter_folder,
                      const std::filesystem::path& out) {
  const ModelConfig config = read_config(base);
  const auto source = io::open_checkpoint(base);
  for (const Parameters::Spec& spec : checkpoint_tensors(config)) {
    source->get(spec.name, spec.shape);
  }
  const auto ctx = Context::cpu({});
  const Adapter adapter = Adapter::load(*ctx, config, adapter_folder, source.get());
  AddAdapter edits(*ctx, config, adapter);
  io::AtomicFolder folder(out);
  write_checkpoint(config, base, *source, edits, folder.path());
  folder.commit();
  const std::vector<std::string> names = source->names();
  return std::count_if(names.begin(), names.end(), [&](const std::string& name) {
    return io::is_quantized(source->get(name).type);
  });
}

void save_model(Context& ctx, const Model& model, const std::filesystem::path& base,
                const std::filesystem::path& out) {
  if (!model.trainable()) {
    throw runtime_failure("save_model", "a frozen model", "a model that was loaded trainable");
  }
  ReplaceWeights edits(ctx, model);
  write_checkpoint(model.config, base, *model.source, edits, out);
}

}  // namespace wgrad::model
