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

/// out = silu(gate) up.
template <class T>
void swiglu_forward(const T* gate, const T* up, T* out /* set */, int64_t n);

/// grad_gate = grad_out up silu'(gate); grad_up = grad_out silu(gate).
template <class T>
void swiglu_backward(const T* gate, const T* up, const T* grad_out,  //
                     T* grad_gate /* set */, T* grad_up /* set */, int64_t n);

}  // namespace wgrad::cpu
