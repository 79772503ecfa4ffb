#pragma once

#include <cstdint>

namespace wgrad::cpu {

/// y[r,j] += bias[j].
template <class T>
void add_bias(T* y,           // [rows, n], accumulates
              const T* bias,  // [n]
              int64_t rows, int64_t n);

/// grad_bias[j] += sum over r of grad_y[r,j]; rows are added in order.
template <class T>
void bias_backward(const T* grad_y,  // [rows, n]
                   T* grad_bias,     // [n], accumulates
                   int64_t rows, int64_t n);

}  // namespace wgrad::cpu
