#pragma once

#include <cstdint>

namespace wgrad::cpu {

/// y = exp(x - max) / sum(exp(x - max)), a row at a time.
template <class T>
void softmax_forward(const T* x,  // [rows, n]
                     T* y,        // [rows, n], set; may be x
                     int64_t rows, int64_t n);

/// grad_x = y (grad_y - sum(y grad_y)).
template <class T>
void softmax_backward(const T* y,       // [rows, n], from forward
                      const T* grad_y,  // [rows, n]
                      T* grad_x,        // [rows, n], set; may be grad_y
                      int64_t rows, int64_t n);

}  // namespace wgrad::cpu
