#include "model/adapted_linear.h"

namespace wgrad::model {

AdaptedLinear::AdaptedLinear(const Linear& linear, const LoraPair& lora, const AdapterPass& pass,
                             uint64_t place)
    : linear(linear), lora(lora) {
  if (!lora) return;
  if (!pass.halves.empty()) halves = &pass.halves[lora.index];
  if (lora.magnitude != nullptr) dora = &pass.dora[lora.index];
  dropout = pass.dropout;
  // A stream of its own for each step (32 bits), micro-batch (16) and place (16).
  const uint64_t stream = uint64_t{pass.step} << 32 | uint64_t{pass.micro_batch & 0xffffu} << 16;
  key = {.seed = pass.seed, .stream = stream | (place & 0xffffu)};
}

void AdaptedLinear::forward(Context& ctx, ops::LinearInput& input, const Tensor& y, bool accumulate,
                            LoraActivations* saved) const {
  if (uses_halves(ctx, input.tokens())) {
    const Tensor xa = ctx.allocate({input.tokens(), halves->rank}, DType::kF32, "activations/lora");
    const ops::LowRankTerm term = ops::lora_project_forward(ctx, input, *halves, lora.scale, xa);
    if (saved != nullptr) saved->xa = xa;
    if (dora == nullptr) {
      ops::linear_forward(ctx, input, linear.weight, linear.bias, y, accumulate, term);
      return;
    }
    const Tensor scaled = ctx.allocate(y.shape(), DType::kF32, "activations/dora");
    ops::linear_forward(ctx, input, linear.weight, Tensor(), scaled, false, term);
    ops::dora_forward(ctx, scaled, dora->factor, linear.bias, 0.0f, y, accumulate);
    if (saved != nullptr) saved->scaled = scaled;
    return;
  }
  if (dora != nullptr) return add_dora(ctx, input, y, accumulate, saved);
  ops::linear_forward(ctx, input, linear.weight, linear.bias, y, accumulate);
  if (lora) add_lora(ctx, dropped(ctx, input.rows()), y, saved);
}

Tensor AdaptedLinear::dropped(Context& ctx, const Tensor& x) const {
  if (dropout == 0) return x;
  const Tensor out = ctx.allocate(x.shape(), DType::kF32, "scratch/dropout");
  ops::dropout(ctx, x, out, dropout, key);
  return out;
}

void AdaptedLinear::add_lora(Context& ctx, const Tensor& x, const Tensor& y,
                             LoraActivations* saved) const {
  const Tensor xa = ctx.allocate({x.dim(0), lora.a->value.dim(0)}, DType::kF32, "activations/lora");
  ops::lora_forward(ctx, x, lora.a->value, lora.b->value, lora.scale, xa, y);
  if (saved != nullptr) saved->xa = xa;
}

void AdaptedLinear::add_dora(Context& ctx, ops::LinearInput& input, const Tensor& y,
                             bool accumulate, LoraActivations* saved) const {
  const Shape shape = {input.tokens(), linear.weight.out_features};
  const Tensor scaled = ctx.allocate(shape, DType::kF32, "activations/dora");
  if (dropout == 0) {
    ops::linear_forward(ctx, input, linear.weight, Tensor(), scaled);
    add_lora(ctx, input.rows(), scaled, saved);
    ops::dora_forward(ctx, scaled, dora->factor, linear.bias, 0.0f, y, accumulate);
  } else {
    // The layer itself sees the whole input, what is scaled only what dropout leaves of it.
    ops::linear_forward(ctx, input, linear.weight, linear.bias, y, accumulate);
    const Tensor x = dropped(ctx, input.rows());
    ops::linear_forward(ctx, x, linear.weight, Tensor(), scaled);
    ops::dora_forward(ctx, scaled, dora->factor, Tensor(), -1.0f, y, true);
    const Tensor low_rank = ctx.allocate_zeroed(shape, DType::kF32, "scratch/dora");
    add_lora(ctx, x, low_rank, saved);
    ops::dora_forward(ctx, low_rank, dora->factor, Tensor(), 0.0f, y, true);
    ops::add(ctx, low_rank, scaled);
  }
  if (saved != nullptr) saved->scaled = scaled;
}

bool AdaptedLinear::uses_halves(const Context& ctx, int64_t tokens) const {
  return lora && halves != nullptr && dropout == 0 &&
         ops::lora_fits(ctx, *halves, linear.weight, tokens);
}

bool AdaptedLinear::takes_packed(const Context& ctx, int64_t tokens) const {
  // What DoRA scales is rows, and so are their gradients.
  if (linear.grad_weight || linear.grad_bias || dora != nullptr) return false;
  return lora ? uses_halves(ctx, tokens) : ops::linear_takes_packed(ctx, linear.weight, tokens);
}

Tensor AdaptedLinear::backward_input(Context& ctx, const LoraActivations& saved,
                                     ops::LinearInput& grad_y, const Tensor& grad_x,
                                     bool accumulate) const {
  Tensor grad_xa;
  ops::LowRankTerm term;
  if (lora) {
    grad_xa = ctx.allocate(saved.xa.shape(), DType::kF32, "scratch/lora");
    term = ops::lora_project_backward(ctx, grad_y, *halves, lora.scale, grad_xa);
  }
  if (grad_x) ops::linear_backward_input(ctx, grad_y, linear.weight, grad_x, accumulate, term);
  return grad_xa;
}

void AdaptedLinear::backward_parameters(Context& ctx, ops::LinearInput& x,
                                        const LoraActivations& saved, ops::LinearInput& grad_y,
                                        const Tensor& grad_xa) const {
  if (!lora) return;
  ops::lora_add_gradients(ctx, grad_y, saved.xa, lora.scale, x, grad_xa, lora.b->grad,
                          lora.a->grad);
}

void AdaptedLinear::backward(Context& ctx, ops::LinearInput& input, const LoraActivations& saved,
                             ops::LinearInput& grad_input, const Tensor& grad_x,
                             bool accumulate) const {
  if (takes_packed(ctx, grad_input.tokens())) {
    const Tensor grad_xa = backward_input(ctx, saved, grad_input, grad_x, accumulate);
    backward_parameters(ctx, input, saved, grad_input, grad_xa);
    return;
  }
  if (dora != nullptr) return backward_dora(ctx, input, saved, grad_input, grad_x, accumulate);
  const Tensor& x = input.rows();
  const Tensor& grad_y = grad_input.rows();
  if (grad_x) ops::linear_backward_input(ctx, grad_y, linear.weight, grad_x, accumulate);
  if (linear.grad_weight) ops::linear_backward_weight(ctx, grad_y, x, linear.grad_weight);
  if (linear.grad_bias) ops::bias_backward(ctx, grad_y, linear.grad_bias);
  if (!lora) return;
  Tensor grad_dropped = grad_x;
  if (dropout > 0 && grad_x) {
    grad_dropped = ctx.allocate_zeroed(x.shape(), DType::kF32, "scratch/dropout");
  }
  backward_lora(ctx, dropped(ctx, x), saved, grad_y, grad_dropped);
  if (dropout > 0 && grad_x) ops::dropout(ctx, grad_dropped, grad_x, dropout, key, true);
}

void AdaptedLinear::backward_lora(Context& ctx, const Tensor& x, const LoraActivations& saved,
                                  const Tensor& grad_y, const Tensor& grad_x) const {
  const Tensor grad_xa = ctx.allocate(saved.xa.shape(), DType::kF32, "scratch/lora");
  ops::lora_backward(ctx, x, saved.xa, lora.a->value, lora.b->value, lora.scale, grad_y, grad_xa,
                     lora.a->grad, lora.b->grad, grad_x);
}

void AdaptedLinear::backward_dora(Context& ctx, ops::LinearInput& input,
                                  const LoraActivations& saved, ops::LinearInput& grad_input,
                                  const Tensor& grad_x, bool accumulate) const {
  const Tensor& grad_y = grad_input.rows();
  const Tensor grad_scaled = ctx.allocate(grad_y.shape(), DType::kF32, "scratch/grad dora");
  ops::dora_backward(ctx, grad_y, *dora, saved.scaled, grad_scaled, lora.magnitude->grad);
  if (uses_halves(ctx, grad_input.tokens())) {
    ops::LinearInput grad(grad_scaled);
    const Tensor grad_xa = backward_input(ctx, saved, grad, grad_x, accumulate);
    backward_parameters(ctx, input, saved, grad, grad_xa);
    return;
  }
  const Tensor& x = input.rows();
  if (dropout == 0) {
    if (grad_x) ops::linear_backward_input(ctx, grad_scaled, linear.weight, grad_x, accumulate);
    backward_lora(ctx, x, saved, grad_scaled, grad_x);
    return;
  }
  Tensor grad_dropped;
  if (grad_x) {
    ops::linear_backward_input(ctx, grad_input, linear.weight, grad_x, accumulate);
    const Tensor grad_less = ctx.allocate(grad_y.shape(), DType::kF32, "scratch/grad dora");
    ops::dora_forward(ctx, grad_y, dora->factor, Tensor(), -1.0f, grad_less, false);
    grad_dropped = ctx.allocate(x.shape(), DType::kF32, "scratch/dropout");
    ops::linear_backward_input(ctx, grad_less, linear.weight, grad_dropped, false);
  }
  backward_lora(ctx, dropped(ctx, x), saved, grad_scaled, grad_dropped);
  if (grad_x) ops::dropout(ctx, grad_dropped, grad_x, dropout, key, true);
}

}  // namespace wgrad::model
