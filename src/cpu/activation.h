#pragma once

#include <cstdint>

/// Pointwise activations. Outputs may be the same arrays as inputs; all are finite for every
/// finite x. s is the logistic function.
namespace wgrad::cpu {

/// y = x s(x).
template <class T>
void silu_forward(const T* x, T* y /* set */, int64_t n);

/// grad_x = grad_y s(x) (1 + x (1 - s(x))).
template <class T>
void silu_backward(const T* x, const T* grad_y, T* grad_x /* set */, int64_t n);

/// What a gated activation does to its gate; each is x times a function that rises from 0 to 1.
enum class Activation : uint8_t {
  kSilu,      ///< x s(x)
  kGeluTanh,  ///< x s(2 sqrt(2 / pi) (x + 0.044715 x^3)): gelu as its tanh formula has it
  kGelu,      ///< x Phi(x), Phi the normal distribution function
};
inline constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGeluTanh,
                                              Activation::kGelu};

/// out = activation(gate) up (Shazeer 2020).
template <class T>
void gated_forward(Activation activation, const T* gate, const T* up, T* out /* set */, int64_t n);

/// grad_gate = grad_out up activation'(gate); grad_up = grad_out activation(gate).
template <class T>
void gated_backward(Activation activation, const T* gate, const T* up, const T* grad_out,
                    T* grad_gate /* set */, T* grad_up /* set */, int64_t n);

}  // namespace wgrad::cpu
