#pragma once

#include <span>

#include "model/adapter.h"
#include "model/model.h"
#include "ops/context.h"
#include "ops/dora.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/lora_matrix.h"

namespace wgrad::model {

/// What an adapted layer's backward pass reads besides its input.
struct LoraActivations {
  Tensor xa;      ///< [T, rank], drop(x) A^T
  Tensor scaled;  ///< [T, out], what DoRA scales: drop(x) (W + scale B A)^T
};

/// What all adapted layers of one pass share.
struct AdapterPass {
  std::span<const ops::LoraHalves> halves;  ///< of each module of the adapter in f16; or none
  std::span<const ops::DoraFactors> dora;   ///< of each module of the adapter; or none
  float dropout = 0.0f;                     ///< 0 in evaluation
  uint64_t seed = 0;
  uint32_t step = 0, micro_batch = 0;
};

/// One linear layer with what may stand beside it: y = x W^T + b + scale (drop(x) A^T) B^T, and
/// with DoRA y = x W^T + b + (g - 1) drop(x) W^T + g scale (drop(x) A^T) B^T, g = ops::DoraFactors.
/// A view for one pass; borrows everything.
struct AdaptedLinear {
  const Linear& linear;
  LoraPair lora;
  const ops::LoraHalves* halves = nullptr;  ///< of this pass, where there are
  const ops::DoraFactors* dora = nullptr;   ///< of this pass, with DoRA
  float dropout = 0.0f;                     ///< 0 in evaluation
  ops::DropoutKey key;

  /// `place` is a number of its own for each layer of the model, below 2^16.
  AdaptedLinear(const Linear& linear, const LoraPair& lora, const AdapterPass& pass,
                uint64_t place);

  /// Sets y [T, out], or adds to it. `saved` is filled where it is given and needed.
  void forward(Context& ctx, ops::LinearInput& input, const Tensor& y, bool accumulate,
               LoraActivations* saved) const;
  /// Adds to the gradients of what is trained. Sets grad_x, or adds to it; an empty grad_x is not
  /// needed. `x` may hold no rows where uses_input() is false.
  void backward(Context& ctx, ops::LinearInput& x, const LoraActivations& saved,
                ops::LinearInput& grad_y, const Tensor& grad_x, bool accumulate) const;
  /// Whether both passes take inputs that exist in packed form alone. Then backward() is these two,
  /// of which the second takes what the first returns.
  bool takes_packed(const Context& ctx, int64_t tokens) const;
  Tensor backward_input(Context& ctx, const LoraActivations& saved, ops::LinearInput& grad_y,
                        const Tensor& grad_x, bool accumulate) const;
  void backward_parameters(Context& ctx, ops::LinearInput& x, const LoraActivations& saved,
                           ops::LinearInput& grad_y, const Tensor& grad_xa) const;
  /// The backward pass reads x.
  bool uses_input() const {
    return static_cast<bool>(lora) || static_cast<bool>(linear.grad_weight);
  }

 private:
  /// The adapter's products are part of the layer's, in f16.
  bool uses_halves(const Context& ctx, int64_t tokens) const;
  /// x after dropout; x itself where there is none.
  Tensor dropped(Context& ctx, const Tensor& x) const;
  void add_lora(Context& ctx, const Tensor& x, const Tensor& y, LoraActivations* saved) const;
  void add_dora(Context& ctx, ops::LinearInput& input, const Tensor& y, bool accumulate,
                LoraActivations* saved) const;
  void backward_dora(Context& ctx, ops::LinearInput& x, const LoraActivations& saved,
                     ops::LinearInput& grad_y, const Tensor& grad_x, bool accumulate) const;
  /// Of the low-rank term alone; adds to grad_x, the gradient by the dropped input.
  void backward_lora(Context& ctx, const Tensor& x, const LoraActivations& saved,
                     const Tensor& grad_y, const Tensor& grad_x) const;
};

}  // namespace wgrad::model
