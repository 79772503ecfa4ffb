#pragma once

#include <cstdint>

#include "cpu/scalar.h"

namespace wgrad::cpu {

/// sum of x^2, in double for f32; fixed blocks, so the same bits for any number of threads.
template <class T>
Sum<T> sum_squares(const T* x, int64_t n);

struct AdamWStep {
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double bias_correction1 = 1.0;  ///< 1 - beta1^t
  double bias_correction2 = 1.0;  ///< 1 - beta2^t
};

/// With g' = grad_scale g: m = b1 m + (1 - b1) g'; v = b2 v + (1 - b2) g'^2;
/// p -= lr (m / c1 / (sqrt(v / c2) + eps) + weight_decay p), where the decay is a product with
/// 1 - lr weight_decay, rounded once: in f32 that rounding adds up over steps, and PyTorch has it.
template <class T>
void adamw_step(T* p,        // [n], updated
                const T* g,  // [n]
                T* m,        // [n], updated
                T* v,        // [n], updated
                int64_t n, const AdamWStep& step, double grad_scale = 1.0);

}  // namespace wgrad::cpu
