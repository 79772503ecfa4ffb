#include "model/decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/linear_token.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "wgrad/error.h"

namespace wgrad::model {

Decoder::Decoder(Context& ctx, const Model& model, const Adapter* adapter,
                 const DecoderSettings& settings)
    : ctx_(ctx), model_(model), adapter_(adapter), settings_(settings) {
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

Tensor Decoder::embed(const Batch& batch) {
  const Tensor x = ctx_.allocate({batch.tokens(), model_.config.hidden_size}, DType::kF32,
                                 "activations/residual");
  ops::embedding_forward(ctx_, batch.device_ids, model_.embedding, x);
  const float scale = model_.config.embedding_scale;
  if (scale != 1.0f) ops::scale(ctx_, x, scale);
  return x;
}

std::span<const ops::LoraHalves> Decoder::pack_adapter() {
  if (adapter_ == nullptr || !ops::lora_uses_matrices(ctx_, adapter_->lora().rank)) return {};
  if (!factors_) {
    std::vector<std::pair<Tensor, Tensor>> pairs;
    for (int64_t layer = 0; layer < layers(); ++layer) {
      for (const Projection p : kProducts) {
        const LoraPair pair = adapter_->pair(layer, p);
        pairs.push_back(pair ? std::pair(pair.a->value, pair.b->value)
                             : std::pair<Tensor, Tensor>());
      }
    }
    factors_.emplace(ctx_, pairs);
  }
  factors_->pack(ctx_);
  return factors_->halves();
}

Tensor Decoder::run_blocks(const Batch& batch, std::vector<KeyValueCache>* caches) {
  const std::vector<RopeView> ropes = cover_positions(batch);
  BlockPass pass{.batch = batch, .ropes = ropes};
  if (caches == nullptr) pass.halves = pack_adapter();
  Tensor x = embed(batch);
  for (int64_t i = 0; i < layers(); ++i) {
    KeyValueCache* cache = caches == nullptr ? nullptr : &(*caches)[static_cast<size_t>(i)];
    x = Block(ctx_, model_, adapter_, i).forward(pass, x, nullptr, cache);
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

Tensor Decoder::output_logits(const Tensor& x) {
  const ModelConfig& config = model_.config;
  const Tensor logits =
      ctx_.allocate({x.dim(0), config.vocab_size}, DType::kF32, "activations/logits");
  const ops::TokenLinear head{&model_.output, Tensor(), logits};
  if (x.dim(0) == 1 && ops::fits_token_linears(ctx_, {&head, 1}, true)) {
    ops::token_linears(ctx_, x, {model_.final_norm.weight, config.rms_norm_eps, config.norm_offset},
                       {&head, 1});
  } else {
    Tensor inv_rms;
    ops::linear_forward(ctx_, final_norm(x, inv_rms), model_.output, Tensor(), logits);
  }
  if (!config.logits.is_identity()) ops::map_logits(ctx_, logits, config.logits);
  return logits;
}

Tensor Decoder::logits(const Batch& batch) { return output_logits(run_blocks(batch, nullptr)); }

Tensor Decoder::next_logits(const Batch& batch, std::vector<KeyValueCache>& caches) {
  const Tensor x = run_blocks(batch, &caches);
  if (batch.tokens() == 1) return output_logits(x);
  const auto last = static_cast<uint32_t>(batch.tokens() - 1);
  const Tensor row = ctx_.make<uint32_t>({1}, DType::kU32, std::span(&last, 1), "batch/last");
  const Tensor last_x = ctx_.allocate({1, x.dim(1)}, DType::kF32, "activations/head");
  ops::gather_rows(ctx_, x, row, last_x);
  return output_logits(last_x);
}

Tensor Decoder::losses(const Batch& batch) {
  if (batch.counted.empty()) return {};
  const Tensor x = run_blocks(batch, nullptr);
  const Tensor counted =
      ctx_.allocate({batch.counted_tokens(), x.dim(1)}, DType::kF32, "activations/head");
  ops::gather_rows(ctx_, x, batch.device_counted, counted);
  Tensor inv_rms;
  const Tensor normed = final_norm(counted, inv_rms);
  const Tensor losses = ctx_.allocate({batch.counted_tokens()}, DType::kF32, "activations/losses");
  ops::linear_cross_entropy(ctx_, normed, model_.output, batch.device_targets, 1.0f, losses,
                            Tensor(), Tensor(), model_.config.logits);
  return losses;
}

Tensor Decoder::head_forward_backward(const Batch& batch, const Tensor& x, float loss_scale,
                                      const Tensor& loss_sum) {
  const Shape shape = {batch.counted_tokens(), x.dim(1)};
  const auto scratch = [&] { return ctx_.allocate(shape, DType::kF32, "activations/head"); };
  const Tensor counted = scratch();
  ops::gather_rows(ctx_, x, batch.device_counted, counted);
  Tensor inv_rms;
  Tensor normed = final_norm(counted, inv_rms);
  const Tensor losses = ctx_.allocate({batch.counted_tokens()}, DType::kF32, "activations/losses");
  const Tensor grad_normed = scratch();
  ops::linear_cross_entropy(ctx_, normed, model_.output, batch.device_targets, loss_scale, losses,
                            grad_normed, model_.grad_output, model_.config.logits);
  ops::sum(ctx_, losses, loss_sum, true);
  normed = Tensor();
  const Tensor grad_counted = scratch();
  ops::rms_norm_backward(ctx_, counted, model_.final_norm.weight, inv_rms, grad_normed,
                         grad_counted, false, model_.final_norm.grad, model_.config.norm_offset);
  const Tensor grad = ctx_.allocate(x.shape(), DType::kF32, "activations/grad residual");
  ops::scatter_rows(ctx_, grad_counted, batch.device_counted, grad);
  return grad;
}

void Decoder::forward_backward(const Batch& batch, float loss_scale, StepKey key,
                               const Tensor& loss_sum) {
  if (batch.counted.empty()) return;
  if (adapter_ == nullptr && !model_.trainable()) {
    throw runtime_failure("decoder", "nothing is trained", "an adapter or a trainable model");
  }
  const std::vector<RopeView> ropes = cover_positions(batch);
  const BlockPass pass{.batch = batch,
                       .ropes = ropes,
                       .training = true,
                       .dropout_seed = settings_.dropout_seed,
                       .step = key.step,
                       .micro_batch = key.micro_batch,
                       .halves = pack_adapter()};
  const auto block = [&](int64_t i) { return Block(ctx_, model_, adapter_, i); };
  const bool keep = settings_.recompute == Recompute::kNone;

  std::vector<BlockActivations> saved(static_cast<size_t>(layers()));
  Tensor x = embed(batch);
  for (int64_t i = 0; i < layers(); ++i) {
    BlockActivations& activations = saved[static_cast<size_t>(i)];
    if (keep) {
      x = block(i).forward(pass, x, &activations, nullptr);
    } else {
      activations.input = x;
      x = ctx_.allocate(x.shape(), DType::kF32, "activations/residual");
      ops::copy(ctx_, activations.input, x);
      x = block(i).forward(pass, x, nullptr, nullptr);
    }
  }
  const Tensor grad = head_forward_backward(batch, x, loss_scale, loss_sum);
  x = Tensor();
  for (int64_t i = layers() - 1; i >= 0; --i) {
    BlockActivations& activations = saved[static_cast<size_t>(i)];
    if (!keep) block(i).forward(pass, Tensor(activations.input), &activations, nullptr);
    // Every layer has the same adapted projections, so the first is where an adapter ends.
    block(i).backward(pass, activations, grad, i > 0 || model_.trainable());
  }
  if (model_.grad_embedding) {
    const float scale = model_.config.embedding_scale;
    if (scale != 1.0f) ops::scale(ctx_, grad, scale);
    ops::embedding_backward(ctx_, batch.ids, grad, model_.grad_embedding);
  }
}

}  // namespace wgrad::model
