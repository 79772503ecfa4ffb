#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/elementwise.h"
#include "ops/f16_operand.h"
#include "ops/tensor.h"

/// A gated activation (Shazeer 2020) between products of f16 operands: its results leave packed for
/// the products that take them, and what the backward pass reads is kept in 16 bits an element.
namespace wgrad::ops {

/// gate and up [rows, columns] as halves, each row times an exact power of two.
struct GatedHalves {
  Tensor gate, up;  ///< f16 [rows, columns]
  Tensor scales;    ///< f32 [3, rows padded to 64]: what rows of gate, up and activated are
                    ///< multiplied by
  Activation activation = Activation::kSilu;

  explicit operator bool() const { return static_cast<bool>(gate); }
};

/// Whether the context packs activations of this size here, whole.
bool gated_packs(const Context& ctx, int64_t rows, int64_t columns);

/// activation(gate) up for f32 gate and up [rows, columns]. Sets `halves`.
F16Operand gated_pack_forward(Context& ctx, Activation activation, const Tensor& gate,
                              const Tensor& up, GatedHalves& halves);

struct GatedGradients {
  F16Operand gate, up;
  F16Operand activated;  ///< again
};
GatedGradients gated_pack_backward(Context& ctx, const GatedHalves& halves,
                                   const Tensor& grad_activated);

}  // namespace wgrad::ops
