#include "model/block.h"

#include <cmath>

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

Tensor activation(Context& ctx, Shape shape, const char* label) {
  return ctx.allocate(std::move(shape), DType::kF32, label);
}

/// Appends rows to a cache and returns all that it then holds.
Tensor append(Context& ctx, const Tensor& rows, const Tensor& cache, int64_t length) {
  const int64_t end = length + rows.dim(0);
  ops::copy(ctx, rows, cache.rows(length, end));
  return cache.rows(0, end);
}

}  // namespace

Block::Block(Context& ctx, const Model& model, const Adapter* adapter, int64_t index)
    : ctx_(ctx),
      model_(model),
      layer_(model.layers[static_cast<size_t>(index)]),
      adapter_(adapter),
      index_(index) {}

AdaptedLinear Block::linear(const BlockPass& pass, Projection projection) const {
  AdaptedLinear out{.linear = layer_[projection], .lora = {}, .halves = nullptr, .key = {}};
  if (adapter_ == nullptr) return out;
  out.lora = adapter_->pair(index_, projection);
  if (out.lora && !pass.halves.empty()) {
    out.halves = &pass.halves[static_cast<size_t>(index_) * kProducts.size() +
                              static_cast<size_t>(projection)];
  }
  out.scale = adapter_->scale();
  if (pass.training) out.dropout = static_cast<float>(adapter_->lora().dropout);
  // A stream of its own for each step (32 bits), micro-batch (16), layer (13) and projection (3).
  const uint64_t place = static_cast<uint64_t>(index_) * 8 + static_cast<uint64_t>(projection);
  const uint64_t stream = uint64_t{pass.step} << 32 | uint64_t{pass.micro_batch & 0xffffu} << 16;
  out.key = {.seed = pass.dropout_seed, .stream = stream | (place & 0xffffu)};
  return out;
}

ops::AttentionShape Block::attention_shape(const Batch& batch) const {
  const ModelConfig& config = model_.config;
  ops::AttentionShape shape;
  shape.heads = config.heads;
  shape.kv_heads = config.kv_heads;
  shape.head_dim = config.head_dim;
  shape.window = window();
  shape.longest_row = batch.longest_row;
  shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  return shape;
}

bool Block::trains(std::initializer_list<Projection> projections) const {
  if (adapter_ == nullptr) return model_.trainable();
  for (const Projection p : projections) {
    if (adapter_->adapts(p)) return true;
  }
  return false;
}

void Block::forward_head_norm(const Norm& norm, Tensor& x, Tensor& projected, Tensor& inv_rms,
                              const char* label) const {
  const int64_t head_dim = model_.config.head_dim;
  const int64_t rows = x.size() / head_dim;
  projected = x;
  x = activation(ctx_, projected.shape(), label);
  inv_rms = activation(ctx_, {rows}, "activations/norm");
  ops::rms_norm_forward(ctx_, projected.reshape({rows, head_dim}), norm.weight,
                        x.reshape({rows, head_dim}), inv_rms, model_.config.rms_norm_eps);
}

Tensor Block::attend(const BlockPass& pass, const Tensor& normed, BlockActivations& act,
                     KeyValueCache* cache) const {
  const ModelConfig& config = model_.config;
  const int64_t tokens = normed.dim(0);
  ops::LinearInput input(normed);
  const auto project = [&](Projection p, const char* label) {
    const Tensor y = activation(ctx_, {tokens, config.out_features(p)}, label);
    linear(pass, p).forward(ctx_, input, y, false, &act.lora[static_cast<size_t>(p)]);
    return y;
  };
  Tensor q = project(Projection::kQ, "activations/q");
  Tensor k = project(Projection::kK, "activations/k");
  const Tensor v = project(Projection::kV, "activations/v");
  if (config.qk_norm) {
    forward_head_norm(layer_.q_norm, q, act.q_projected, act.q_inv_rms, "activations/q");
    forward_head_norm(layer_.k_norm, k, act.k_projected, act.k_inv_rms, "activations/k");
  }
  for (const Tensor& x : {q, k}) {
    ops::rope_apply(ctx_, x, pass.batch.device_positions, pass.rope_table, config.head_dim,
                    config.head_dim, ops::RopePairing::kHalfSplit, false);
  }
  ops::AttentionShape shape = attention_shape(pass.batch);
  Tensor keys = k, values = v;
  if (cache != nullptr) {
    shape.query_offset = cache->length;
    keys = append(ctx_, k, cache->keys, cache->length);
    values = append(ctx_, v, cache->values, cache->length);
    cache->length += tokens;
  }
  act.attention = activation(ctx_, q.shape(), "activations/attention");
  act.logsumexp = activation(ctx_, {tokens, config.heads}, "activations/attention");
  act.heads = ops::attention_forward(ctx_, shape, q, keys, values, pass.batch.device_row_begin,
                                     act.attention, act.logsumexp);
  return act.attention;
}

ops::LinearInput Block::activate(const BlockPass& pass, BlockActivations& act) const {
  const int64_t tokens = act.gate.dim(0);
  const auto takes_packed = [&](Projection p) {
    return linear(pass, p).takes_packed(ctx_, tokens);
  };
  if (ops::gated_packs(ctx_, tokens, act.gate.dim(1)) && takes_packed(Projection::kGate) &&
      takes_packed(Projection::kUp) && takes_packed(Projection::kDown)) {
    ops::LinearInput input(
        ops::gated_pack_forward(ctx_, ops::Activation::kSilu, act.gate, act.up, act.gated));
    act.gate = act.up = Tensor();
    return input;
  }
  const Tensor activated = activation(ctx_, act.gate.shape(), "scratch/activated");
  ops::gated_forward(ctx_, ops::Activation::kSilu, act.gate, act.up, activated);
  return ops::LinearInput(activated);
}

Tensor Block::forward(const BlockPass& pass, const Tensor& x, BlockActivations* saved,
                      KeyValueCache* cache) const {
  const ModelConfig& config = model_.config;
  const int64_t tokens = x.dim(0);
  if (cache != nullptr && tokens == 1 && takes_token(pass)) return forward_token(pass, x, *cache);
  BlockActivations act;
  Tensor stream = x;
  act.input_inv_rms = activation(ctx_, {tokens}, "activations/norm");
  {
    const Tensor normed = activation(ctx_, x.shape(), "scratch/normed");
    ops::rms_norm_forward(ctx_, x, layer_.input_norm.weight, normed, act.input_inv_rms,
                          config.rms_norm_eps);
    const Tensor attention = attend(pass, normed, act, cache);
    if (saved != nullptr) {
      act.input = x;
      stream = activation(ctx_, x.shape(), "activations/residual");
      ops::copy(ctx_, x, stream);
    } else {
      act.heads = {};
      act.q_projected = act.k_projected = act.logsumexp = Tensor();
    }
    ops::LinearInput input(attention);
    linear(pass, Projection::kO)
        .forward(ctx_, input, stream, true, &act.lora[static_cast<size_t>(Projection::kO)]);
  }
  if (saved == nullptr) act = BlockActivations();

  act.middle_inv_rms = activation(ctx_, {tokens}, "activations/norm");
  act.gate = activation(ctx_, {tokens, config.intermediate_size}, "activations/gate");
  act.up = activation(ctx_, {tokens, config.intermediate_size}, "activations/up");
  {
    const Tensor normed = activation(ctx_, x.shape(), "scratch/normed");
    ops::rms_norm_forward(ctx_, stream, layer_.post_attention_norm.weight, normed,
                          act.middle_inv_rms, config.rms_norm_eps);
    ops::LinearInput input(normed);
    linear(pass, Projection::kGate)
        .forward(ctx_, input, act.gate, false, &act.lora[static_cast<size_t>(Projection::kGate)]);
    linear(pass, Projection::kUp)
        .forward(ctx_, input, act.up, false, &act.lora[static_cast<size_t>(Projection::kUp)]);
  }
  ops::LinearInput input = activate(pass, act);
  if (saved != nullptr) {
    act.middle = stream;
    stream = activation(ctx_, x.shape(), "activations/residual");
    ops::copy(ctx_, act.middle, stream);
  } else {
    act.gate = act.up = Tensor();
    act.gated = {};
  }
  linear(pass, Projection::kDown)
      .forward(ctx_, input, stream, true, &act.lora[static_cast<size_t>(Projection::kDown)]);
  if (saved != nullptr) *saved = std::move(act);
  return stream;
}

Tensor Block::backward_head_norm(const Norm& norm, const Tensor& projected, const Tensor& inv_rms,
                                 Tensor grad, const char* label) const {
  const int64_t head_dim = model_.config.head_dim;
  const Shape rows = {projected.size() / head_dim, head_dim};
  const Tensor grad_projected = activation(ctx_, projected.shape(), label);
  ops::rms_norm_backward(ctx_, projected.reshape(rows), norm.weight, inv_rms, grad.reshape(rows),
                         grad_projected.reshape(rows), false, norm.grad);
  return grad_projected;
}

Tensor Block::middle_normed(const BlockActivations& saved) const {
  const Tensor normed = activation(ctx_, saved.middle.shape(), "scratch/normed");
  ops::rms_norm_forward(ctx_, saved.middle, layer_.post_attention_norm.weight, normed,
                        saved.middle_inv_rms, model_.config.rms_norm_eps);
  return normed;
}

void Block::backward_middle_norm(const BlockActivations& saved, const Tensor& grad_normed,
                                 const Tensor& grad) const {
  ops::rms_norm_backward(ctx_, saved.middle, layer_.post_attention_norm.weight,
                         saved.middle_inv_rms, grad_normed, grad, true,
                         layer_.post_attention_norm.grad);
}

void Block::backward_feed_forward(const BlockPass& pass, BlockActivations& saved,
                                  const Tensor& grad, bool needs_input_grad) const {
  const auto lora = [&](Projection p) -> Tensor& { return saved.lora[static_cast<size_t>(p)]; };
  const AdaptedLinear down = linear(pass, Projection::kDown);
  const AdaptedLinear up = linear(pass, Projection::kUp);
  const AdaptedLinear gate = linear(pass, Projection::kGate);
  const bool below = needs_input_grad || trains({Projection::kGate, Projection::kUp});
  Tensor grad_activated;
  {
    Tensor activated;
    if (down.uses_input()) {
      activated = activation(ctx_, saved.gate.shape(), "scratch/activated");
      ops::gated_forward(ctx_, ops::Activation::kSilu, saved.gate, saved.up, activated);
    }
    if (below) grad_activated = activation(ctx_, saved.gate.shape(), "scratch/grad activated");
    ops::LinearInput input(activated), grad_output(grad);
    down.backward(ctx_, input, lora(Projection::kDown), grad_output, grad_activated, false);
    lora(Projection::kDown) = Tensor();
  }
  if (!below) return;

  ops::LinearInput grad_gate(activation(ctx_, saved.gate.shape(), "scratch/grad gate"));
  ops::LinearInput grad_up(activation(ctx_, saved.up.shape(), "scratch/grad up"));
  ops::gated_backward(ctx_, ops::Activation::kSilu, saved.gate, saved.up, grad_activated,
                      grad_gate.rows(), grad_up.rows());
  grad_activated = saved.gate = saved.up = Tensor();
  Tensor grad_normed;
  const bool uses_input = gate.uses_input() || up.uses_input();
  ops::LinearInput input(uses_input ? middle_normed(saved) : Tensor());
  if (needs_input_grad) grad_normed = activation(ctx_, saved.middle.shape(), "scratch/grad normed");
  up.backward(ctx_, input, lora(Projection::kUp), grad_up, grad_normed, false);
  gate.backward(ctx_, input, lora(Projection::kGate), grad_gate, grad_normed, true);
  lora(Projection::kUp) = lora(Projection::kGate) = Tensor();
  if (needs_input_grad) backward_middle_norm(saved, grad_normed, grad);
}

void Block::backward_packed_feed_forward(const BlockPass& pass, BlockActivations& saved,
                                         const Tensor& grad, bool needs_input_grad) const {
  const auto lora = [&](Projection p) -> Tensor& { return saved.lora[static_cast<size_t>(p)]; };
  const AdaptedLinear down = linear(pass, Projection::kDown);
  const AdaptedLinear up = linear(pass, Projection::kUp);
  const AdaptedLinear gate = linear(pass, Projection::kGate);
  ops::GatedGradients gradients;
  {
    ops::LinearInput grad_output(grad);
    Tensor grad_activated = activation(ctx_, saved.gated.gate.shape(), "scratch/grad activated");
    const Tensor grad_xa =
        down.backward_input(ctx_, lora(Projection::kDown), grad_output, grad_activated, false);
    gradients = ops::gated_pack_backward(ctx_, saved.gated, grad_activated);
    saved.gated = {};
    grad_activated = Tensor();
    ops::LinearInput activated(std::move(gradients.activated));
    down.backward_parameters(ctx_, activated, lora(Projection::kDown), grad_output, grad_xa);
    lora(Projection::kDown) = Tensor();
  }
  if (!needs_input_grad && !trains({Projection::kGate, Projection::kUp})) return;

  ops::LinearInput input(middle_normed(saved));
  Tensor grad_normed;
  if (needs_input_grad) grad_normed = activation(ctx_, saved.middle.shape(), "scratch/grad normed");
  ops::LinearInput grad_up(std::move(gradients.up)), grad_gate(std::move(gradients.gate));
  up.backward(ctx_, input, lora(Projection::kUp), grad_up, grad_normed, false);
  gate.backward(ctx_, input, lora(Projection::kGate), grad_gate, grad_normed, true);
  lora(Projection::kUp) = lora(Projection::kGate) = Tensor();
  if (needs_input_grad) backward_middle_norm(saved, grad_normed, grad);
}

void Block::backward_attention(const BlockPass& pass, BlockActivations& saved, const Tensor& grad,
                               bool needs_input_grad) const {
  const ModelConfig& config = model_.config;
  const auto lora = [&](Projection p) -> Tensor& { return saved.lora[static_cast<size_t>(p)]; };
  const bool below = needs_input_grad || trains({Projection::kQ, Projection::kK, Projection::kV});
  Tensor grad_attention;
  if (below) grad_attention = activation(ctx_, saved.attention.shape(), "scratch/grad attention");
  {
    ops::LinearInput input(saved.attention), grad_output(grad);
    linear(pass, Projection::kO)
        .backward(ctx_, input, lora(Projection::kO), grad_output, grad_attention, false);
  }
  lora(Projection::kO) = Tensor();
  if (!below) return;

  const int64_t tokens = saved.attention.dim(0);
  const auto grad_of = [&](Projection p, const char* label) {
    return activation(ctx_, {tokens, config.out_features(p)}, label);
  };
  Tensor grad_q = grad_of(Projection::kQ, "scratch/grad q");
  Tensor grad_k = grad_of(Projection::kK, "scratch/grad k");
  const Tensor grad_v = grad_of(Projection::kV, "scratch/grad v");
  ops::attention_backward(ctx_, attention_shape(pass.batch), saved.heads,
                          pass.batch.device_row_begin, pass.batch.device_row_end, saved.attention,
                          saved.logsumexp, grad_attention, grad_q, grad_k, grad_v);
  saved.heads = {};
  saved.attention = saved.logsumexp = grad_attention = Tensor();
  for (const Tensor& x : {grad_q, grad_k}) {
    ops::rope_apply(ctx_, x, pass.batch.device_positions, pass.rope_table, config.head_dim,
                    config.head_dim, ops::RopePairing::kHalfSplit, true);
  }
  if (config.qk_norm) {
    grad_k = backward_head_norm(layer_.k_norm, saved.k_projected, saved.k_inv_rms, grad_k,
                                "scratch/grad k");
    grad_q = backward_head_norm(layer_.q_norm, saved.q_projected, saved.q_inv_rms, grad_q,
                                "scratch/grad q");
    saved.q_projected = saved.k_projected = Tensor();
  }
  Tensor normed, grad_normed;
  if (trains({Projection::kQ, Projection::kK, Projection::kV})) {
    normed = activation(ctx_, saved.input.shape(), "scratch/normed");
    ops::rms_norm_forward(ctx_, saved.input, layer_.input_norm.weight, normed, saved.input_inv_rms,
                          config.rms_norm_eps);
  }
  if (needs_input_grad) grad_normed = activation(ctx_, saved.input.shape(), "scratch/grad normed");
  ops::LinearInput input(normed);
  const auto backward = [&](Projection p, const Tensor& grad_y, bool accumulate) {
    ops::LinearInput grad_output(grad_y);
    linear(pass, p).backward(ctx_, input, lora(p), grad_output, grad_normed, accumulate);
  };
  backward(Projection::kV, grad_v, false);
  backward(Projection::kK, grad_k, true);
  backward(Projection::kQ, grad_q, true);
  if (!needs_input_grad) return;
  ops::rms_norm_backward(ctx_, saved.input, layer_.input_norm.weight, saved.input_inv_rms,
                         grad_normed, grad, true, layer_.input_norm.grad);
}

void Block::backward(const BlockPass& pass, BlockActivations& saved, const Tensor& grad,
                     bool needs_input_grad) const {
  const bool attention_half =
      needs_input_grad || trains({Projection::kQ, Projection::kK, Projection::kV, Projection::kO});
  if (saved.gated) {
    backward_packed_feed_forward(pass, saved, grad, attention_half);
  } else {
    backward_feed_forward(pass, saved, grad, attention_half);
  }
  if (attention_half) backward_attention(pass, saved, grad, needs_input_grad);
  saved = BlockActivations();
}

}  // namespace wgrad::model
