#include "ops/linear.h"
#include "ops/matmul.h"

namespace wgrad::ops {

void lora_forward(Context& ctx, const Tensor& x, const Tensor& a, const Tensor& b, float scale,
                  const Tensor& xa, const Tensor& y) {
  matmul(ctx, MatmulOp::kNT, x, a, xa);
  matmul(ctx, MatmulOp::kNT, xa, b, y, {.alpha = scale, .accumulate = true});
}

void lora_backward(Context& ctx, const Tensor& x, const Tensor& xa, const Tensor& a,
                   const Tensor& b, float scale, const Tensor& grad_y, const Tensor& grad_xa,
                   const Tensor& grad_a, const Tensor& grad_b, const Tensor& grad_x) {
  matmul(ctx, MatmulOp::kTN, grad_y, xa, grad_b, {.alpha = scale, .accumulate = true});
  matmul(ctx, MatmulOp::kNN, grad_y, b, grad_xa, {.alpha = scale});
  matmul(ctx, MatmulOp::kTN, grad_xa, x, grad_a, {.accumulate = true});
  if (grad_x) matmul(ctx, MatmulOp::kNN, grad_xa, a, grad_x, {.accumulate = true});
}

}  // namespace wgrad::ops
