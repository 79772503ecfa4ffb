#include "model/adapted_linear.h"

namespace wgrad::model {

void AdaptedLinear::forward(Context& ctx, ops::LinearInput& input, const Tensor& y, bool accumulate,
                            Tensor* saved) const {
  if (uses_halves(ctx, input.tokens())) {
    const Tensor xa = ctx.allocate({input.tokens(), halves->rank}, DType::kF32, "activations/lora");
    const ops::LowRankTerm term = ops::lora_project_forward(ctx, input, *halves, scale, xa);
    ops::linear_forward(ctx, input, linear.weight, linear.bias, y, accumulate, term);
    if (saved != nullptr) *saved = xa;
    return;
  }
  ops::linear_forward(ctx, input, linear.weight, linear.bias, y, accumulate);
  if (!lora) return;
  const Tensor& x = input.rows();
  Tensor dropped = x;
  if (dropout > 0) {
    dropped = ctx.allocate(x.shape(), DType::kF32, "scratch/dropout");
    ops::dropout(ctx, x, dropped, dropout, key);
  }
  const Tensor xa = ctx.allocate({x.dim(0), lora.a->value.dim(0)}, DType::kF32, "activations/lora");
  ops::lora_forward(ctx, dropped, lora.a->value, lora.b->value, scale, xa, y);
  if (saved != nullptr) *saved = xa;
}

bool AdaptedLinear::uses_halves(const Context& ctx, int64_t tokens) const {
  return lora && halves != nullptr && dropout == 0 &&
         ops::lora_fits(ctx, *halves, linear.weight, tokens);
}

bool AdaptedLinear::takes_packed(const Context& ctx, int64_t tokens) const {
  if (linear.grad_weight || linear.grad_bias) return false;
  return lora ? uses_halves(ctx, tokens) : ops::linear_takes_packed(ctx, linear.weight, tokens);
}

Tensor AdaptedLinear::backward_input(Context& ctx, const Tensor& saved, ops::LinearInput& grad_y,
                                     const Tensor& grad_x, bool accumulate) const {
  Tensor grad_xa;
  ops::LowRankTerm term;
  if (lora) {
    grad_xa = ctx.allocate(saved.shape(), DType::kF32, "scratch/lora");
    term = ops::lora_project_backward(ctx, grad_y, *halves, scale, grad_xa);
  }
  if (grad_x) ops::linear_backward_input(ctx, grad_y, linear.weight, grad_x, accumulate, term);
  return grad_xa;
}

void AdaptedLinear::backward_parameters(Context& ctx, ops::LinearInput& x, const Tensor& saved,
                                        ops::LinearInput& grad_y, const Tensor& grad_xa) const {
  if (!lora) return;
  ops::lora_add_gradients(ctx, grad_y, saved, scale, x, grad_xa, lora.b->grad, lora.a->grad);
}

void AdaptedLinear::backward(Context& ctx, ops::LinearInput& input, const Tensor& saved,
                             ops::LinearInput& grad_input, const Tensor& grad_x,
                             bool accumulate) const {
  if (takes_packed(ctx, grad_input.tokens())) {
    const Tensor grad_xa = backward_input(ctx, saved, grad_input, grad_x, accumulate);
    backward_parameters(ctx, input, saved, grad_input, grad_xa);
    return;
  }
  const Tensor& x = input.rows();
  const Tensor& grad_y = grad_input.rows();
  if (grad_x) ops::linear_backward_input(ctx, grad_y, linear.weight, grad_x, accumulate);
  if (linear.grad_weight) ops::linear_backward_weight(ctx, grad_y, x, linear.grad_weight);
  if (linear.grad_bias) ops::bias_backward(ctx, grad_y, linear.grad_bias);
  if (!lora) return;
  Tensor dropped = x, grad_dropped = grad_x;
  if (dropout > 0) {
    dropped = ctx.allocate(x.shape(), DType::kF32, "scratch/dropout");
    ops::dropout(ctx, x, dropped, dropout, key);
    if (grad_x) grad_dropped = ctx.allocate_zeroed(x.shape(), DType::kF32, "scratch/dropout");
  }
  const Tensor grad_xa = ctx.allocate(saved.shape(), DType::kF32, "scratch/lora");
  ops::lora_backward(ctx, dropped, saved, lora.a->value, lora.b->value, scale, grad_y, grad_xa,
                     lora.a->grad, lora.b->grad, grad_dropped);
  if (dropout > 0 && grad_x) ops::dropout(ctx, grad_dropped, grad_x, dropout, key, true);
}

}  // namespace wgrad::model
