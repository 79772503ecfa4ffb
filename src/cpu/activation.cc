#include "cpu/activation.h"

#include "cpu/instantiate.h"
#include "cpu/parallel.h"
#include "cpu/scalar.h"
#include "cpu/vector_math.h"

namespace wgrad::cpu {
namespace {

constexpr int64_t kBlock = 4096;
/// A logistic function costs about as much as this many additions.
constexpr int64_t kWork = 8;

/// The loops are written once; the float ones are compiled for each vector width below.
template <class T>
WGRAD_INLINE void silu_range(const T* x, T* y, int64_t begin, int64_t end) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] * logistic(x[i]).value;
}

template <class T>
WGRAD_INLINE void silu_backward_range(const T* x, const T* grad_y, T* grad_x, int64_t begin,
                                      int64_t end) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const Logistic<T> s = logistic(x[i]);
    grad_x[i] = grad_y[i] * (s.value * (T(1) + x[i] * s.complement));
  }
}

template <class T>
WGRAD_INLINE void swiglu_range(const T* gate, const T* up, T* out, int64_t begin, int64_t end) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) out[i] = gate[i] * logistic(gate[i]).value * up[i];
}

template <class T>
WGRAD_INLINE void swiglu_backward_range(const T* gate, const T* up, const T* grad_out, T* grad_gate,
                                        T* grad_up, int64_t begin, int64_t end) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const T x = gate[i];
    const T grad = grad_out[i];
    const Logistic<T> s = logistic(x);
    const T silu_gradient = s.value * (T(1) + x * s.complement);
    const T grad_silu = grad * up[i];
    grad_up[i] = grad * (x * s.value);
    grad_gate[i] = grad_silu * silu_gradient;
  }
}

WGRAD_MULTIVERSION void silu_f32(const float* x, float* y, int64_t begin, int64_t end) {
  silu_range(x, y, begin, end);
}
WGRAD_MULTIVERSION void silu_backward_f32(const float* x, const float* grad_y, float* grad_x,
                                          int64_t begin, int64_t end) {
  silu_backward_range(x, grad_y, grad_x, begin, end);
}
WGRAD_MULTIVERSION void swiglu_f32(const float* gate, const float* up, float* out, int64_t begin,
                                   int64_t end) {
  swiglu_range(gate, up, out, begin, end);
}
WGRAD_MULTIVERSION void swiglu_backward_f32(const float* gate, const float* up,
                                            const float* grad_out, float* grad_gate, float* grad_up,
                                            int64_t begin, int64_t end) {
  swiglu_backward_range(gate, up, grad_out, grad_gate, grad_up, begin, end);
}

}  // namespace

template <class T>
void silu_forward(const T* x, T* y, int64_t n) {
  parallel_blocks(n, kBlock, kWork, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      silu_f32(x, y, begin, end);
    } else {
      silu_range(x, y, begin, end);
    }
  });
}

template <class T>
void silu_backward(const T* x, const T* grad_y, T* grad_x, int64_t n) {
  parallel_blocks(n, kBlock, kWork, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      silu_backward_f32(x, grad_y, grad_x, begin, end);
    } else {
      silu_backward_range(x, grad_y, grad_x, begin, end);
    }
  });
}

template <class T>
void swiglu_forward(const T* gate, const T* up, T* out, int64_t n) {
  parallel_blocks(n, kBlock, kWork, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      swiglu_f32(gate, up, out, begin, end);
    } else {
      swiglu_range(gate, up, out, begin, end);
    }
  });
}

template <class T>
void swiglu_backward(const T* gate, const T* up, const T* grad_out, T* grad_gate, T* grad_up,
                     int64_t n) {
  parallel_blocks(n, kBlock, kWork, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      swiglu_backward_f32(gate, up, grad_out, grad_gate, grad_up, begin, end);
    } else {
      swiglu_backward_range(gate, up, grad_out, grad_gate, grad_up, begin, end);
    }
  });
}

#define WGRAD_INSTANTIATE(T)                                        \
  template void silu_forward<T>(const T*, T*, int64_t);             \
  template void silu_backward<T>(const T*, const T*, T*, int64_t);  \
  template void swiglu_forward<T>(const T*, const T*, T*, int64_t); \
  template void swiglu_backward<T>(const T*, const T*, const T*, T*, T*, int64_t);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
