#include "cpu/softmax.h"

#include "cpu/instantiate.h"
#include "cpu/parallel.h"
#include "cpu/row_sums.h"

namespace wgrad::cpu {
namespace {

template <class T>
WGRAD_INLINE void forward_row(const T* x, T* y, int64_t n) {
  const T max = row_max(x, n);
  const T inverse = T(Sum<T>(1) / sum_exp(x, n, max));
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) y[j] = exp_of<T>(x[j] - max) * inverse;
}

template <class T>
WGRAD_INLINE void backward_row(const T* y, const T* grad_y, T* grad_x, int64_t n) {
  const T dot = T(sum_blocks<T>(n, [&](int64_t j) { return y[j] * grad_y[j]; }));
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) grad_x[j] = y[j] * (grad_y[j] - dot);
}

WGRAD_MULTIVERSION void forward_row_f32(const float* x, float* y, int64_t n) {
  forward_row(x, y, n);
}
WGRAD_MULTIVERSION void backward_row_f32(const float* y, const float* grad_y, float* grad_x,
                                         int64_t n) {
  backward_row(y, grad_y, grad_x, n);
}

}  // namespace

template <class T>
void softmax_forward(const T* x, T* y, int64_t rows, int64_t n) {
  parallel_for(rows, 16 * n, [&](int64_t r) {
    if constexpr (std::is_same_v<T, float>) {
      forward_row_f32(x + r * n, y + r * n, n);
    } else {
      forward_row(x + r * n, y + r * n, n);
    }
  });
}

template <class T>
void softmax_backward(const T* y, const T* grad_y, T* grad_x, int64_t rows, int64_t n) {
  parallel_for(rows, 2 * n, [&](int64_t r) {
    if constexpr (std::is_same_v<T, float>) {
      backward_row_f32(y + r * n, grad_y + r * n, grad_x + r * n, n);
    } else {
      backward_row(y + r * n, grad_y + r * n, grad_x + r * n, n);
    }
  });
}

#define WGRAD_INSTANTIATE(T)                                        \
  template void softmax_forward<T>(const T*, T*, int64_t, int64_t); \
  template void softmax_backward<T>(const T*, const T*, T*, int64_t, int64_t);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
