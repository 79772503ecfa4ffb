#pragma once

#include "model/adapter.h"
#include "model/model.h"
#include "ops/context.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/lora_matrix.h"

namespace wgrad::model {

/// One linear layer with what may stand beside it: y = x W^T + b + scale (drop(x) A^T) B^T.
/// A view for one pass; borrows everything.
struct AdaptedLinear {
  const Linear& linear;
  LoraPair lora;
  const ops::LoraHalves* halves = nullptr;  ///< of this pass, where there are
  float scale = 0.0f;
  float dropout = 0.0f;  ///< 0 in evaluation
  ops::DropoutKey key;

  /// Sets y [T, out], or adds to it. `saved` receives x A^T where it is given and needed.
  void forward(Context& ctx, ops::LinearInput& input, const Tensor& y, bool accumulate,
               Tensor* saved) const;
  /// Adds to the gradients of what is trained. Sets grad_x, or adds to it; an empty grad_x is not
  /// needed. `x` may hold no rows where uses_input() is false.
  void backward(Context& ctx, ops::LinearInput& x, const Tensor& saved, ops::LinearInput& grad_y,
                const Tensor& grad_x, bool accumulate) const;
  /// Whether both passes take inputs that exist in packed form alone. Then backward() is these two,
  /// of which the second takes what the first returns.
  bool takes_packed(const Context& ctx, int64_t tokens) const;
  Tensor backward_input(Context& ctx, const Tensor& saved, ops::LinearInput& grad_y,
                        const Tensor& grad_x, bool accumulate) const;
  void backward_parameters(Context& ctx, ops::LinearInput& x, const Tensor& saved,
                           ops::LinearInput& grad_y, const Tensor& grad_xa) const;
  /// The backward pass reads x.
  bool uses_input() const {
    return static_cast<bool>(lora) || static_cast<bool>(linear.grad_weight);
  }

 private:
  /// The adapter's products are part of the layer's, in f16.
  bool uses_halves(const Context& ctx, int64_t tokens) const;
};

}  // namespace wgrad::model
