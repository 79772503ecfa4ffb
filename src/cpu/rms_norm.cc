#include "cpu/rms_norm.h"

#include "cpu/instantiate.h"
#include "cpu/parallel.h"
#include "cpu/scalar.h"
#include "cpu/vector_math.h"

namespace wgrad::cpu {
namespace {

template <class T>
WGRAD_INLINE T inverse_rms(const T* x, int64_t n, double eps) {
  Sum<T> sum(0);
  for (int64_t j = 0; j < n; ++j) sum += Sum<T>(x[j]) * Sum<T>(x[j]);
  return T(Sum<T>(1) /
           std::sqrt(sum / constant<Sum<T>>(static_cast<double>(n)) + constant<Sum<T>>(eps)));
}

template <class T>
void forward_row(const T* x, const T* weight, T offset, T* y, T* inv_rms, int64_t n, double eps) {
  const T inverse = inverse_rms(x, n, eps);
  for (int64_t j = 0; j < n; ++j) y[j] = (offset + weight[j]) * (x[j] * inverse);
  *inv_rms = inverse;
}

template <class T>
void backward_row(const T* x, const T* weight, T offset, T inv_rms, const T* grad_y, T* grad_x,
                  int64_t n, bool accumulate) {
  T dot(0);
  for (int64_t j = 0; j < n; ++j) dot += (offset + weight[j]) * grad_y[j] * (x[j] * inv_rms);
  const T mean = dot / constant<T>(static_cast<double>(n));
  for (int64_t j = 0; j < n; ++j) {
    const T grad = inv_rms * ((offset + weight[j]) * grad_y[j] - (x[j] * inv_rms) * mean);
    grad_x[j] = accumulate ? grad_x[j] + grad : grad;
  }
}

/// x^2 is summed in double: f32 would overflow from 1.8e19 and lose small elements beside large.
WGRAD_MULTIVERSION
void forward_row_f32(const float* x, const float* weight, float offset, float* y, float* inv_rms,
                     int64_t n, double eps) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += static_cast<double>(x[j]) * static_cast<double>(x[j]);
  const float inverse = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + eps));
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) y[j] = (offset + weight[j]) * (x[j] * inverse);
  *inv_rms = inverse;
}

WGRAD_MULTIVERSION
void backward_row_f32(const float* x, const float* weight, float offset, float inv_rms,
                      const float* grad_y, float* grad_x, int64_t n, bool accumulate) {
  float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
  for (int64_t j = 0; j < n; ++j) dot += (offset + weight[j]) * grad_y[j] * (x[j] * inv_rms);
  const float mean = dot / static_cast<float>(n);
  if (accumulate) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      grad_x[j] += inv_rms * ((offset + weight[j]) * grad_y[j] - (x[j] * inv_rms) * mean);
    }
  } else {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      grad_x[j] = inv_rms * ((offset + weight[j]) * grad_y[j] - (x[j] * inv_rms) * mean);
    }
  }
}

WGRAD_MULTIVERSION
void add_weight_gradient_f32(const float* x, float inv_rms, const float* grad_y, float* grad_weight,
                             int64_t begin, int64_t end) {
#pragma omp simd
  for (int64_t j = begin; j < end; ++j) grad_weight[j] += grad_y[j] * (x[j] * inv_rms);
}

}  // namespace

template <class T>
void rms_norm_forward(const T* x, const T* weight, T* y, T* inv_rms, int64_t rows, int64_t n,
                      double eps, double weight_offset) {
  const T offset = constant<T>(weight_offset);
  parallel_for(rows, n, [&](int64_t r) {
    if constexpr (std::is_same_v<T, float>) {
      forward_row_f32(x + r * n, weight, offset, y + r * n, inv_rms + r, n, eps);
    } else {
      forward_row(x + r * n, weight, offset, y + r * n, inv_rms + r, n, eps);
    }
  });
}

template <class T>
void rms_norm_backward(const T* x, const T* weight, const T* inv_rms, const T* grad_y, T* grad_x,
                       T* grad_weight, int64_t rows, int64_t n, bool accumulate,
                       double weight_offset) {
  const T offset = constant<T>(weight_offset);
  if (grad_weight != nullptr) {
    parallel_blocks(n, kColumnBlock, rows, [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < rows; ++r) {
        if constexpr (std::is_same_v<T, float>) {
          add_weight_gradient_f32(x + r * n, inv_rms[r], grad_y + r * n, grad_weight, begin, end);
        } else {
          for (int64_t j = begin; j < end; ++j) {
            grad_weight[j] += grad_y[r * n + j] * (x[r * n + j] * inv_rms[r]);
          }
        }
      }
    });
  }
  parallel_for(rows, 2 * n, [&](int64_t r) {
    if constexpr (std::is_same_v<T, float>) {
      backward_row_f32(x + r * n, weight, offset, inv_rms[r], grad_y + r * n, grad_x + r * n, n,
                       accumulate);
    } else {
      backward_row(x + r * n, weight, offset, inv_rms[r], grad_y + r * n, grad_x + r * n, n,
                   accumulate);
    }
  });
}

#define WGRAD_INSTANTIATE(T)                                                                       \
  template void rms_norm_forward<T>(const T*, const T*, T*, T*, int64_t, int64_t, double, double); \
  template void rms_norm_backward<T>(const T*, const T*, const T*, const T*, T*, T*, int64_t,      \
                                     int64_t, bool, double);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
