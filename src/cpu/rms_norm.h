#pragma once

#include <cstdint>

namespace wgrad::cpu {

/// y = (offset + w) x / r with r = sqrt(mean(x^2) + eps), a row at a time; inv_rms = 1 / r is
/// saved.
template <class T>
void rms_norm_forward(const T* x,       // [rows, n]
                      const T* weight,  // [n]
                      T* y,             // [rows, n], set; may be x
                      T* inv_rms,       // [rows], set
                      int64_t rows, int64_t n, double eps, double weight_offset = 0.0);

/// With u = (offset + w) grad_y: grad_x = (u - x mean(x u) / r^2) / r; grad_weight += sum over rows
/// of grad_y x / r, rows added in order.
template <class T>
void rms_norm_backward(const T* x,        // [rows, n]
                       const T* weight,   // [n]
                       const T* inv_rms,  // [rows], from forward
                       const T* grad_y,   // [rows, n]
                       T* grad_x,         // [rows, n], set, or accumulates if `accumulate`;
                                          // may be grad_y if neither accumulating nor grad_weight
                       T* grad_weight,    // [n], accumulates; null: not computed
                       int64_t rows, int64_t n, bool accumulate, double weight_offset = 0.0);

}  // namespace wgrad::cpu
