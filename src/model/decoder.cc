#include "model/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/linear_token.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

/// The output layer's place among a pass's dropout streams: from the end, a place a chunk of rows.
constexpr uint64_t kOutputPlace = 0xffff;

Model with_saved_modules(Context& ctx, const Model& model, const Adapter* adapter) {
  if (adapter == nullptr || !adapter->saves_modules()) return model;
  return replaced(ctx, model, adapter->parameters());
}

}  // namespace

Decoder::Decoder(Context& ctx, const Model& model, const Adapter* adapter,
                 const DecoderSettings& settings)
    : ctx_(ctx),
      model_(with_saved_modules(ctx, model, adapter)),
      adapter_(adapter),
      settings_(settings),
      output_{
          .weight = model_.output, .bias = {}, .grad_weight = model_.grad_output, .grad_bias = {}} {
  for (const RopeConfig& rope : model.config.ropes) {
    rope_tables_.emplace_back(ctx, rope, settings.max_positions, model.config.max_positions);
  }
}

std::vector<RopeView> Decoder::cover_positions(const Batch& batch) {
  const int64_t most = model_.config.max_positions;
  const int64_t needed =
      int64_t{*std::max_element(batch.positions.begin(), batch.positions.end())} + 1;
  if (needed > most) {
    throw input_error("batch", fmt::format("a row of {} tokens", needed),
                      fmt::format("at most the model's max_position_embeddings of {}", most),
                      "cut the rows (--max-seq-len)");
  }
  std::vector<RopeView> views;
  for (RopeTable& table : rope_tables_) views.push_back(table.cover(ctx_, batch));
  return views;
}

Tensor Decoder::embed(const Batch& batch, Tensor* saved) {
  const Tensor x = ctx_.allocate({batch.tokens(), model_.config.hidden_size}, DType::kF32,
                                 "activations/residual");
  ops::embedding_forward(ctx_, batch.device_ids, model_.embedding, x);
  const LoraPair lora = adapter_ == nullptr ? LoraPair() : adapter_->embedding();
  if (lora) {
    const Tensor& table = lora.a->value;
    const Tensor rows =
        ctx_.allocate({batch.tokens(), table.dim(1)}, DType::kF32, "activations/lora");
    ops::embedding_forward(ctx_, batch.device_ids, ops::weight_from(table, lora.a->name), rows);
    ops::matmul(ctx_, ops::MatmulOp::kNT, rows, lora.b->value, x,
                {.alpha = lora.scale, .accumulate = true});
    if (saved != nullptr) *saved = rows;
  }
  const float scale = model_.config.embedding_scale;
  if (scale != 1.0f) ops::scale(ctx_, x, scale);
  return x;
}

void Decoder::backward_embed(const Batch& batch, const Tensor& saved, const Tensor& grad) {
  const float scale = model_.config.embedding_scale;
  if (scale != 1.0f) ops::scale(ctx_, grad, scale);
  if (model_.grad_embedding) {
    ops::embedding_backward(ctx_, batch.ids, grad, model_.grad_embedding);
  }
  const LoraPair lora = adapter_ == nullptr ? LoraPair() : adapter_->embedding();
  if (!lora) return;
  const Tensor grad_rows = ctx_.allocate(saved.shape(), DType::kF32, "scratch/lora");
  ops::matmul(ctx_, ops::MatmulOp::kNN, grad, lora.b->value, grad_rows, {.alpha = lora.scale});
  ops::matmul(ctx_, ops::MatmulOp::kTN, grad, saved, lora.b->grad,
              {.alpha = lora.scale, .accumulate = true});
  ops::embedding_backward(ctx_, batch.ids, grad_rows, lora.a->grad);
}

std::span<const ops::LoraHalves> Decoder::pack_adapter() {
  if (adapter_ == nullptr) return {};
  const std::vector<AdaptedProduct>& products = adapter_->products();
  const auto packs = [&](const AdaptedProduct& product) {
    return product.kind == AdaptedModule::Kind::kLinear &&
           ops::lora_uses_matrices(ctx_, product.pair.a->value.dim(0));
  };
  if (std::none_of(products.begin(), products.end(), packs)) return {};
  if (!factors_) {
    std::vector<std::pair<Tensor, Tensor>> pairs;
    for (const AdaptedProduct& product : products) {
      const LoraPair& pair = product.pair;
      pairs.push_back(packs(product) ? std::pair(pair.a->value, pair.b->value)
                                     : std::pair<Tensor, Tensor>());
    }
    factors_.emplace(ctx_, pairs);
  }
  factors_->pack(ctx_);
  return factors_->halves();
}

std::span<const ops::DoraFactors> Decoder::measure_rows() {
  if (adapter_ == nullptr || !adapter_->lora().dora) return {};
  for (const AdaptedProduct& product : adapter_->products()) {
    const LoraPair& pair = product.pair;
    if (dora_.size() == pair.index) {
      const auto lengths = [&] {
        return ctx_.allocate(pair.magnitude->value.shape(), DType::kF32, "adapter/row lengths");
      };
      dora_.push_back({.norm = lengths(), .factor = lengths()});
    }
    ops::dora_factors(ctx_, weight_of(model_, product), pair.a->value, pair.b->value, pair.scale,
                      pair.magnitude->value, dora_[pair.index]);
  }
  return dora_;
}

AdapterPass Decoder::frozen_pass() { return {.halves = pack_adapter(), .dora = measure_rows()}; }

Tensor Decoder::run_blocks(const Batch& batch, const AdapterPass& adapter,
                           std::vector<KeyValueCache>* caches) {
  const std::vector<RopeView> ropes = cover_positions(batch);
  const BlockPass pass{.batch = batch, .ropes = ropes, .adapter = adapter};
  Tensor x = embed(batch, nullptr);
  for (int64_t i = 0; i < layers(); ++i) {
    KeyValueCache* cache = caches == nullptr ? nullptr : &(*caches)[static_cast<size_t>(i)];
    x = block(i).forward(pass, x, nullptr, cache);
  }
  return x;
}

Tensor Decoder::final_norm(const Tensor& x, Tensor& inv_rms) {
  const Tensor normed = ctx_.allocate(x.shape(), DType::kF32, "activations/head");
  inv_rms = ctx_.allocate({x.dim(0)}, DType::kF32, "activations/head");
  ops::rms_norm_forward(ctx_, x, model_.final_norm.weight, normed, inv_rms,
                        model_.config.rms_norm_eps, model_.config.norm_offset);
  return normed;
}

AdaptedLinear Decoder::output(const AdapterPass& pass, uint64_t chunk) const {
  const LoraPair lora = adapter_ == nullptr ? LoraPair() : adapter_->output();
  return AdaptedLinear(output_, lora, pass, kOutputPlace - chunk);
}

ops::OutputLayer Decoder::output_layer(const AdapterPass& pass, bool trains) const {
  struct State {
    uint64_t chunks = 0;
    LoraActivations saved;
  };
  const auto state = std::make_shared<State>();
  ops::OutputLayer layer;
  layer.vocabulary = model_.config.vocab_size;
  layer.map = model_.config.logits;
  layer.forward = [this, &pass, state](const Tensor& x, const Tensor& logits) {
    ops::LinearInput input(x);
    output(pass, state->chunks++).forward(ctx_, input, logits, false, &state->saved);
  };
  if (!trains) return layer;
  layer.backward = [this, &pass, state](const Tensor& x, const Tensor& grad, const Tensor& grad_x) {
    ops::LinearInput input(x), grad_logits(grad);
    output(pass, state->chunks - 1).backward(ctx_, input, state->saved, grad_logits, grad_x, false);
    state->saved = {};
  };
  return layer;
}

Tensor Decoder::output_logits(const Tensor& x, const AdapterPass& pass) {
  const ModelConfig& config = model_.config;
  const Tensor logits =
      ctx_.allocate({x.dim(0), config.vocab_size}, DType::kF32, "activations/logits");
  const AdaptedLinear layer = output(pass, 0);
  const ops::TokenLinear head{&model_.output, Tensor(), logits};
  if (x.dim(0) == 1 && !layer.lora && ops::fits_token_linears(ctx_, {&head, 1}, true)) {
    ops::token_linears(ctx_, x, {model_.final_norm.weight, config.rms_norm_eps, config.norm_offset},
                       {&head, 1});
  } else {
    Tensor inv_rms;
    ops::LinearInput input(final_norm(x, inv_rms));
    layer.forward(ctx_, input, logits, false, nullptr);
  }
  if (!config.logits.is_identity()) ops::map_logits(ctx_, logits, config.logits);
  return logits;
}

Tensor Decoder::logits(const Batch& batch) {
  const AdapterPass pass = frozen_pass();
  return output_logits(run_blocks(batch, pass, nullptr), pass);
}

Tensor Decoder::next_logits(const Batch& batch, std::vector<KeyValueCache>& caches) {
  // Nothing is trained between the tokens of a row.
  const bool first = caches.front().length == 0 || dora_.empty();
  const AdapterPass pass{.halves = {},
                         .dora = first ? measure_rows() : std::span<const ops::DoraFactors>(dora_)};
  const Tensor x = run_blocks(batch, pass, &caches);
  if (batch.tokens() == 1) return output_logits(x, pass);
  const auto last = static_cast<uint32_t>(batch.tokens() - 1);
  const Tensor row = ctx_.make<uint32_t>({1}, DType::kU32, std::span(&last, 1), "batch/last");
  const Tensor last_x = ctx_.allocate({1, x.dim(1)}, DType::kF32, "activations/head");
  ops::gather_rows(ctx_, x, row, last_x);
  return output_logits(last_x, pass);
}

Tensor Decoder::losses(const Batch& batch) {
  if (batch.counted.empty()) return {};
  const AdapterPass pass = frozen_pass();
  const Tensor x = run_blocks(batch, pass, nullptr);
  const Tensor counted =
      ctx_.allocate({batch.counted_tokens(), x.dim(1)}, DType::kF32, "activations/head");
  ops::gather_rows(ctx_, x, batch.device_counted, counted);
  Tensor inv_rms;
  const Tensor normed = final_norm(counted, inv_rms);
  const Tensor losses = ctx_.allocate({batch.counted_tokens()}, DType::kF32, "activations/losses");
  ops::linear_cross_entropy(ctx_, normed, output_layer(pass, false), batch.device_targets, 1.0f,
                            losses, Tensor());
  return losses;
}

Tensor Decoder::head_forward_backward(const Batch& batch, const Tensor& x, const AdapterPass& pass,
                                      float loss_scale, const Tensor& loss_sum) {
  const Shape shape = {batch.counted_tokens(), x.dim(1)};
  const auto scratch = [&] { return ctx_.allocate(shape, DType::kF32, "activations/head"); };
  const Tensor counted = scratch();
  ops::gather_rows(ctx_, x, batch.device_counted, counted);
  Tensor inv_rms;
  Tensor normed = final_norm(counted, inv_rms);
  const Tensor losses = ctx_.allocate({batch.counted_tokens()}, DType::kF32, "activations/losses");
  const Tensor grad_normed = scratch();
  ops::linear_cross_entropy(ctx_, normed, output_layer(pass, true), batch.device_targets,
                            loss_scale, losses, grad_normed);
  ops::sum(ctx_, losses, loss_sum, true);
  normed = Tensor();
  const Tensor grad_counted = scratch();
  ops::rms_norm_backward(ctx_, counted, model_.final_norm.weight, inv_rms, grad_normed,
                         grad_counted, false, model_.final_norm.grad, model_.config.norm_offset);
  const Tensor grad = ctx_.allocate(x.shape(), DType::kF32, "activations/grad residual");
  ops::scatter_rows(ctx_, grad_counted, batch.device_counted, grad);
  return grad;
}

bool Decoder::trains_embedding() const {
  return model_.grad_embedding || (adapter_ != nullptr && adapter_->embedding());
}

int64_t Decoder::first_trained() const {
  int64_t i = 0;
  while (!trains_embedding() && i < layers() && !block(i).trains()) ++i;
  return i;
}

void Decoder::forward_backward(const Batch& batch, float loss_scale, StepKey key,
                               const Tensor& loss_sum) {
  if (batch.counted.empty()) return;
  if (adapter_ == nullptr && !model_.trainable()) {
    throw runtime_failure("decoder", "nothing is trained", "an adapter or a trainable model");
  }
  const std::vector<RopeView> ropes = cover_positions(batch);
  AdapterPass adapter = frozen_pass();
  if (adapter_ != nullptr) adapter.dropout = static_cast<float>(adapter_->lora().dropout);
  adapter.seed = settings_.dropout_seed;
  adapter.step = key.step;
  adapter.micro_batch = key.micro_batch;
  const BlockPass pass{.batch = batch, .ropes = ropes, .adapter = adapter};
  const bool keep = settings_.recompute == Recompute::kNone;
  const int64_t first = first_trained();

  std::vector<BlockActivations> saved(static_cast<size_t>(layers()));
  Tensor embedded;
  Tensor x = embed(batch, &embedded);
  for (int64_t i = 0; i < layers(); ++i) {
    BlockActivations& activations = saved[static_cast<size_t>(i)];
    if (i < first) {
      x = block(i).forward(pass, x, nullptr, nullptr);
    } else if (keep) {
      x = block(i).forward(pass, x, &activations, nullptr);
    } else {
      activations.input = x;
      x = ctx_.allocate(x.shape(), DType::kF32, "activations/residual");
      ops::copy(ctx_, activations.input, x);
      x = block(i).forward(pass, x, nullptr, nullptr);
    }
  }
  const Tensor grad = head_forward_backward(batch, x, adapter, loss_scale, loss_sum);
  x = Tensor();
  for (int64_t i = layers() - 1; i >= first; --i) {
    BlockActivations& activations = saved[static_cast<size_t>(i)];
    if (!keep) block(i).forward(pass, Tensor(activations.input), &activations, nullptr);
    block(i).backward(pass, activations, grad, i > first || trains_embedding());
  }
  if (trains_embedding()) backward_embed(batch, embedded, grad);
}

}  // namespace wgrad::model
