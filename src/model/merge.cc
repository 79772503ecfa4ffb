#include "model/merge.h"

#include <fmt/format.h>

#include <map>

#include "io/atomic_file.h"
#include "model/checkpoint_writer.h"
#include "ops/matmul.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

/// W + scale B A, a few rows at a time.
class AddAdapter : public CheckpointEdits {
 public:
  AddAdapter(Context& ctx, const ModelConfig& config, const Adapter& adapter)
      : ctx_(ctx), scale_(adapter.scale()) {
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      for (const Projection p : config.projections()) {
        const LoraPair pair = adapter.pair(layer, p);
        if (pair) pairs_[module_name(layer, p) + ".weight"] = pair;
      }
    }
  }

  bool changes(const std::string& name) const override { return pairs_.contains(name); }

  void apply(const io::TensorView& tensor, int64_t begin, int64_t end,
             std::span<float> rows) override {
    const LoraPair& pair = pairs_.at(tensor.name);
    const Tensor delta = ctx_.allocate({end - begin, tensor.row_size()}, DType::kF32, "merge");
    ops::matmul(ctx_, ops::MatmulOp::kNN, pair.b->value.rows(begin, end), pair.a->value, delta,
                {.alpha = scale_});
    const auto* values = delta.data<float>();
    for (size_t i = 0; i < rows.size(); ++i) rows[i] += values[i];
  }

 private:
  Context& ctx_;
  float scale_;
  std::map<std::string, LoraPair> pairs_;
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
    return model_.parameters.find(tied ? "model.embed_tokens.weight" : name);
  }

  Context& ctx_;
  const Model& model_;
};

}  // namespace

std::unique_ptr<CheckpointEdits> adapter_edits(Context& ctx, const ModelConfig& config,
                                               const Adapter& adapter) {
  return std::make_unique<AddAdapter>(ctx, config, adapter);
}

void merge_adapter(const std::filesystem::path& base, const std::filesystem::path& adapter_folder,
                   const std::filesystem::path& out) {
  const ModelConfig config = read_config(base);
  const auto source = io::open_checkpoint(base);
  for (const Parameters::Spec& spec : checkpoint_tensors(config)) {
    source->get(spec.name, spec.shape);
  }
  const auto ctx = Context::cpu({});
  const Adapter adapter = Adapter::load(*ctx, config, adapter_folder);
  AddAdapter edits(*ctx, config, adapter);
  io::AtomicFolder folder(out);
  write_checkpoint(base, *source, edits, folder.path());
  folder.commit();
}

void save_model(Context& ctx, const Model& model, const std::filesystem::path& base,
                const std::filesystem::path& out) {
  if (!model.trainable()) {
    throw runtime_failure("save_model", "a frozen model", "a model that was loaded trainable");
  }
  ReplaceWeights edits(ctx, model);
  write_checkpoint(base, *model.source, edits, out);
}

}  // namespace wgrad::model
