#include "model/block.h"
#include "ops/elementwise.h"
#include "ops/norm.h"

namespace wgrad::model {

Tensor Block::backward_head_norm(NormKind kind, const Tensor& projected, const Tensor& inv_rms,
                                 const Tensor& grad, const char* label) const {
  const Norm& norm = layer_[kind];
  const Shape rows = {projected.size() / norm.weight.size(), norm.weight.size()};
  const Tensor grad_projected = activation(projected.shape(), label);
  ops::rms_norm_backward(ctx_, projected.reshape(rows), norm.weight, inv_rms, grad.reshape(rows),
                         grad_projected.reshape(rows), false, norm.grad, model_.config.norm_offset);
  return grad_projected;
}

Tensor Block::backward_output(NormKind kind, HalfOutput& saved, const Tensor& grad) const {
  const Norm& norm = layer_[kind];
  const float scale = model_.config.residual_scale;
  Tensor scaled = grad;
  if (scale != 1.0f) {
    scaled = activation(grad.shape(), "scratch/grad half output");
    ops::scaled_copy(ctx_, grad, scale, scaled);
  }
  if (!norm.weight) return scaled;
  const Tensor grad_output = activation(grad.shape(), "scratch/grad half output");
  ops::rms_norm_backward(ctx_, saved.rows, norm.weight, saved.inv_rms, scaled, grad_output, false,
                         norm.grad, model_.config.norm_offset);
  saved = {};
  return grad_output;
}

Tensor Block::grad_of_normed(NormKind kind, const Tensor& grad) const {
  return layer_[kind].weight ? activation(grad.shape(), "scratch/grad normed") : grad;
}

void Block::backward_input_norm(NormKind kind, const Tensor& x, const Tensor& inv_rms,
                                const Tensor& grad_normed, const Tensor& grad) const {
  const Norm& norm = layer_[kind];
  if (!norm.weight) return;
  ops::rms_norm_backward(ctx_, x, norm.weight, inv_rms, grad_normed, grad, true, norm.grad,
                         model_.config.norm_offset);
}

void Block::backward_feed_forward(const BlockPass& pass, BlockActivations& saved,
                                  const Tensor& grad, bool needs_input_grad) const {
  const auto lora = [&](Projection p) -> LoraActivations& {
    return saved.lora[static_cast<size_t>(p)];
  };
  const AdaptedLinear down = linear(pass, Projection::kDown);
  const AdaptedLinear up = linear(pass, Projection::kUp);
  const AdaptedLinear gate = linear(pass, Projection::kGate);
  const bool below = needs_input_grad || trains({Projection::kGate, Projection::kUp});
  Tensor grad_activated;
  {
    Tensor activated;
    if (down.uses_input()) {
      activated = activation(saved.gate.shape(), "scratch/activated");
      ops::gated_forward(ctx_, model_.config.activation, saved.gate, saved.up, activated);
    }
    if (below) grad_activated = activation(saved.gate.shape(), "scratch/grad activated");
    ops::LinearInput input(activated);
    ops::LinearInput grad_output(
        backward_output(NormKind::kFeedForwardOutput, saved.feed_forward_output, grad));
    down.backward(ctx_, input, lora(Projection::kDown), grad_output, grad_activated, false);
    lora(Projection::kDown) = {};
  }
  if (!below) return;

  ops::LinearInput grad_gate(activation(saved.gate.shape(), "scratch/grad gate"));
  ops::LinearInput grad_up(activation(saved.up.shape(), "scratch/grad up"));
  ops::gated_backward(ctx_, model_.config.activation, saved.gate, saved.up, grad_activated,
                      grad_gate.rows(), grad_up.rows());
  grad_activated = saved.gate = saved.up = Tensor();
  ops::LinearInput input(gate.uses_input() || up.uses_input()
                             ? normed(NormKind::kMiddle, saved.middle, saved.middle_inv_rms)
                             : Tensor());
  backward_gate_and_up(pass, saved, input, grad_gate, grad_up, grad, needs_input_grad);
}

void Block::backward_gate_and_up(const BlockPass& pass, BlockActivations& saved,
                                 ops::LinearInput& input, ops::LinearInput& grad_gate,
                                 ops::LinearInput& grad_up, const Tensor& grad,
                                 bool needs_input_grad) const {
  const auto lora = [&](Projection p) -> LoraActivations& {
    return saved.lora[static_cast<size_t>(p)];
  };
  Tensor grad_normed;
  if (needs_input_grad) grad_normed = grad_of_normed(NormKind::kMiddle, grad);
  // Without a norm the gradient goes straight to the residual stream's.
  const bool adds = !layer_[NormKind::kMiddle].weight;
  linear(pass, Projection::kUp)
      .backward(ctx_, input, lora(Projection::kUp), grad_up, grad_normed, adds);
  linear(pass, Projection::kGate)
      .backward(ctx_, input, lora(Projection::kGate), grad_gate, grad_normed, true);
  lora(Projection::kUp) = lora(Projection::kGate) = {};
  if (!needs_input_grad) return;
  backward_input_norm(NormKind::kMiddle, saved.middle, saved.middle_inv_rms, grad_normed, grad);
}

void Block::backward_packed_feed_forward(const BlockPass& pass, BlockActivations& saved,
                                         const Tensor& grad, bool needs_input_grad) const {
  const auto lora = [&](Projection p) -> LoraActivations& {
    return saved.lora[static_cast<size_t>(p)];
  };
  const AdaptedLinear down = linear(pass, Projection::kDown);
  ops::GatedGradients gradients;
  {
    ops::LinearInput grad_output(
        backward_output(NormKind::kFeedForwardOutput, saved.feed_forward_output, grad));
    Tensor grad_activated = activation(saved.gated.gate.shape(), "scratch/grad activated");
    const Tensor grad_xa =
        down.backward_input(ctx_, lora(Projection::kDown), grad_output, grad_activated, false);
    gradients = ops::gated_pack_backward(ctx_, saved.gated, grad_activated);
    saved.gated = {};
    grad_activated = Tensor();
    ops::LinearInput activated(std::move(gradients.activated));
    down.backward_parameters(ctx_, activated, lora(Projection::kDown), grad_output, grad_xa);
    lora(Projection::kDown) = {};
  }
  if (!needs_input_grad && !trains({Projection::kGate, Projection::kUp})) return;

  ops::LinearInput input(normed(NormKind::kMiddle, saved.middle, saved.middle_inv_rms));
  ops::LinearInput grad_up(std::move(gradients.up)), grad_gate(std::move(gradients.gate));
  backward_gate_and_up(pass, saved, input, grad_gate, grad_up, grad, needs_input_grad);
}

void Block::backward_attention(const BlockPass& pass, BlockActivations& saved, const Tensor& grad,
                               bool needs_input_grad) const {
  const ModelConfig& config = model_.config;
  const auto lora = [&](Projection p) -> LoraActivations& {
    return saved.lora[static_cast<size_t>(p)];
  };
  const bool below = needs_input_grad || trains({NormKind::kQ, NormKind::kK}) ||
                     trains({Projection::kQ, Projection::kK, Projection::kV});
  Tensor grad_attention;
  if (below) grad_attention = activation(saved.attention.shape(), "scratch/grad attention");
  {
    ops::LinearInput input(saved.attention);
    ops::LinearInput grad_output(
        backward_output(NormKind::kAttentionOutput, saved.attention_output, grad));
    linear(pass, Projection::kO)
        .backward(ctx_, input, lora(Projection::kO), grad_output, grad_attention, false);
  }
  lora(Projection::kO) = {};
  if (!below) return;

  const int64_t tokens = saved.attention.dim(0);
  const auto grad_of = [&](Projection p, const char* label) {
    return activation({tokens, config.out_features(p)}, label);
  };
  Tensor grad_q = grad_of(Projection::kQ, "scratch/grad q");
  Tensor grad_k = grad_of(Projection::kK, "scratch/grad k");
  const Tensor grad_v = grad_of(Projection::kV, "scratch/grad v");
  ops::attention_backward(ctx_, attention_shape(pass.batch), saved.heads,
                          pass.batch.device_row_begin, pass.batch.device_row_end, saved.attention,
                          saved.logsumexp, grad_attention, grad_q, grad_k, grad_v);
  saved.heads = {};
  saved.attention = saved.logsumexp = grad_attention = Tensor();
  rotate(pass, grad_q, true);
  rotate(pass, grad_k, true);
  if (config.qk_norm != QkNorm::kNone) {
    grad_k = backward_head_norm(NormKind::kK, saved.k_projected, saved.k_inv_rms, grad_k,
                                "scratch/grad k");
    grad_q = backward_head_norm(NormKind::kQ, saved.q_projected, saved.q_inv_rms, grad_q,
                                "scratch/grad q");
    saved.q_projected = saved.k_projected = Tensor();
  }
  Tensor grad_normed;
  if (needs_input_grad) grad_normed = grad_of_normed(NormKind::kInput, grad);
  ops::LinearInput input(trains({Projection::kQ, Projection::kK, Projection::kV})
                             ? normed(NormKind::kInput, saved.input, saved.input_inv_rms)
                             : Tensor());
  const auto backward = [&](Projection p, const Tensor& grad_y, bool accumulate) {
    ops::LinearInput grad_output(grad_y);
    linear(pass, p).backward(ctx_, input, lora(p), grad_output, grad_normed, accumulate);
  };
  backward(Projection::kV, grad_v, !layer_[NormKind::kInput].weight);
  backward(Projection::kK, grad_k, true);
  backward(Projection::kQ, grad_q, true);
  if (!needs_input_grad) return;
  backward_input_norm(NormKind::kInput, saved.input, saved.input_inv_rms, grad_normed, grad);
}

void Block::backward(const BlockPass& pass, BlockActivations& saved, const Tensor& grad,
                     bool needs_input_grad) const {
  // The gradient of a norm's weight needs that of its output.
  const bool attention_half = needs_input_grad || trains_attention();
  const bool middle_grad = attention_half || trains({NormKind::kMiddle});
  if (saved.gated) {
    backward_packed_feed_forward(pass, saved, grad, middle_grad);
  } else {
    backward_feed_forward(pass, saved, grad, middle_grad);
  }
  if (attention_half) {
    backward_attention(pass, saved, grad, needs_input_grad || trains({NormKind::kInput}));
  }
  saved = BlockActivations();
}

}  // namespace wgrad::model
