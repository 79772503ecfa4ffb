#include "model/adapted_linear.h"

namespace wgrad::model {

void AdaptedLinear::forward(Context& ctx, ops::LinearInput& input, const Tensor& y, bool accumulate,
                            Tensor* saved) const {
  if (uses_halves(ctx, input.rows().dim(0))) {
    const Tensor xa =
        ctx.allocate({input.rows().dim(0), halves->rank}, DType::kF32, "activations/lora");
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

void AdaptedLinear::backward(Context& ctx, ops::LinearInput& input, const Tensor& saved,
                             const Tensor& grad_y, const Tensor& grad_x, bool accumulate) const {
  if (uses_halves(ctx, grad_y.dim(0))) {
    ops::LinearInput grad(grad_y);
    const Tensor grad_xa = ctx.allocate(saved.shape(), DType::kF32, "scratch/lora");
    const ops::LowRankTerm term = ops::lora_project_backward(ctx, grad, *halves, scale, grad_xa);
    if (grad_x) ops::linear_backward_input(ctx, grad, linear.weight, grad_x, accumulate, term);
    ops::lora_add_gradients(ctx, grad, saved, scale, input, grad_xa, lora.b->grad, lora.a->grad);
    return;
  }
  const Tensor& x = input.rows();
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
