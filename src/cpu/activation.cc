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

/// An activation of x and its derivative.
template <class T>
struct Activated {
  T value, slope;
};

struct Silu {
  template <class T>
  static WGRAD_INLINE Activated<T> at(const T& x) {
    const Logistic<T> s = logistic(x);
    return {x * s.value, s.value * (T(1) + x * s.complement)};
  }
};

struct GeluTanh {
  template <class T>
  static WGRAD_INLINE Activated<T> at(const T& x) {
    constexpr double kRoot = 1.5957691216057308, kCubic = 0.044715;  // 2 sqrt(2 / pi)
    // Past 30 the logistic function is 0 or 1 in every scalar, and x^3 would overflow further on.
    const T bounded = real_part(x) > Real<T>(30) ? T(30) : real_part(x) < Real<T>(-30) ? T(-30) : x;
    const T square = bounded * bounded;
    const Logistic<T> s =
        logistic<T>(constant<T>(kRoot) * bounded * (T(1) + constant<T>(kCubic) * square));
    const T inner_slope = constant<T>(kRoot) * (T(1) + constant<T>(3.0 * kCubic) * square);
    return {x * s.value, s.value * (T(1) + bounded * s.complement * inner_slope)};
  }
};

struct Gelu {
  template <class T>
  static WGRAD_INLINE Activated<T> at(const T& x) {
    const Normal<T> normal = normal_of(x);
    return {x * normal.below, normal.below + x * normal.density};
  }
};

/// The loops are written once; the float ones are compiled for each vector width below.
template <class T>
WGRAD_INLINE void silu_range(const T* x, T* y, int64_t begin, int64_t end) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) y[i] = Silu::at(x[i]).value;
}

template <class T>
WGRAD_INLINE void silu_backward_range(const T* x, const T* grad_y, T* grad_x, int64_t begin,
                                      int64_t end) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) grad_x[i] = grad_y[i] * Silu::at(x[i]).slope;
}

template <class F, class T>
WGRAD_INLINE void gated_loop(const T* gate, const T* up, T* out, int64_t begin, int64_t end) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) out[i] = F::at(gate[i]).value * up[i];
}

template <class F, class T>
WGRAD_INLINE void gated_backward_loop(const T* gate, const T* up, const T* grad_out, T* grad_gate,
                                      T* grad_up, int64_t begin, int64_t end) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const T grad = grad_out[i];
    const Activated<T> activated = F::at(gate[i]);
    const T grad_activated = grad * up[i];
    grad_up[i] = grad * activated.value;
    grad_gate[i] = grad_activated * activated.slope;
  }
}

template <class T>
WGRAD_INLINE void gated_range(Activation activation, const T* gate, const T* up, T* out,
                              int64_t begin, int64_t end) {
  switch (activation) {
    case Activation::kSilu:
      return gated_loop<Silu>(gate, up, out, begin, end);
    case Activation::kGeluTanh:
      return gated_loop<GeluTanh>(gate, up, out, begin, end);
    case Activation::kGelu:
      return gated_loop<Gelu>(gate, up, out, begin, end);
  }
}

template <class T>
WGRAD_INLINE void gated_backward_range(Activation activation, const T* gate, const T* up,
                                       const T* grad_out, T* grad_gate, T* grad_up, int64_t begin,
                                       int64_t end) {
  switch (activation) {
    case Activation::kSilu:
      return gated_backward_loop<Silu>(gate, up, grad_out, grad_gate, grad_up, begin, end);
    case Activation::kGeluTanh:
      return gated_backward_loop<GeluTanh>(gate, up, grad_out, grad_gate, grad_up, begin, end);
    case Activation::kGelu:
      return gated_backward_loop<Gelu>(gate, up, grad_out, grad_gate, grad_up, begin, end);
  }
}

WGRAD_MULTIVERSION void silu_f32(const float* x, float* y, int64_t begin, int64_t end) {
  silu_range(x, y, begin, end);
}
WGRAD_MULTIVERSION void silu_backward_f32(const float* x, const float* grad_y, float* grad_x,
                                          int64_t begin, int64_t end) {
  silu_backward_range(x, grad_y, grad_x, begin, end);
}
WGRAD_MULTIVERSION void gated_f32(Activation activation, const float* gate, const float* up,
                                  float* out, int64_t begin, int64_t end) {
  gated_range(activation, gate, up, out, begin, end);
}
WGRAD_MULTIVERSION void gated_backward_f32(Activation activation, const float* gate,
                                           const float* up, const float* grad_out, float* grad_gate,
                                           float* grad_up, int64_t begin, int64_t end) {
  gated_backward_range(activation, gate, up, grad_out, grad_gate, grad_up, begin, end);
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
void gated_forward(Activation activation, const T* gate, const T* up, T* out, int64_t n) {
  parallel_blocks(n, kBlock, kWork, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      gated_f32(activation, gate, up, out, begin, end);
    } else {
      gated_range(activation, gate, up, out, begin, end);
    }
  });
}

template <class T>
void gated_backward(Activation activation, const T* gate, const T* up, const T* grad_out,
                    T* grad_gate, T* grad_up, int64_t n) {
  parallel_blocks(n, kBlock, kWork, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      gated_backward_f32(activation, gate, up, grad_out, grad_gate, grad_up, begin, end);
    } else {
      gated_backward_range(activation, gate, up, grad_out, grad_gate, grad_up, begin, end);
    }
  });
}

#define WGRAD_INSTANTIATE(T)                                                   \
  template void silu_forward<T>(const T*, T*, int64_t);                        \
  template void silu_backward<T>(const T*, const T*, T*, int64_t);             \
  template void gated_forward<T>(Activation, const T*, const T*, T*, int64_t); \
  template void gated_backward<T>(Activation, const T*, const T*, const T*, T*, T*, int64_t);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
