#include "cpu/optimizer.h"

#include <cmath>
#include <vector>

#include "cpu/instantiate.h"
#include "cpu/parallel.h"
#include "cpu/vector_math.h"

namespace wgrad::cpu {
namespace {

constexpr int64_t kBlock = 8192;
/// A square root and a division cost about as much as this many additions.
constexpr int64_t kWork = 8;

template <class T>
WGRAD_INLINE Sum<T> sum_squares_range(const T* x, int64_t n) {
  Sum<T> sum(0);
  for (int64_t i = 0; i < n; ++i) sum += Sum<T>(x[i]) * Sum<T>(x[i]);
  return sum;
}

WGRAD_MULTIVERSION double sum_squares_f32(const float* x, int64_t n) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

/// The step's constants in the scalar's type, each computed in double and rounded once.
template <class T>
struct AdamWConstants {
  T grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  T step_size;        // lr / c1
  T inv_correction2;  // 1 / sqrt(c2)
  T eps;
  T kept;  // 1 - lr weight_decay

  AdamWConstants(const AdamWStep& step, double scale)
      : grad_scale(constant<T>(scale)),
        beta1(constant<T>(step.beta1)),
        one_minus_beta1(constant<T>(1.0 - step.beta1)),
        beta2(constant<T>(step.beta2)),
        one_minus_beta2(constant<T>(1.0 - step.beta2)),
        step_size(constant<T>(step.learning_rate / step.bias_correction1)),
        inv_correction2(constant<T>(1.0 / std::sqrt(step.bias_correction2))),
        eps(constant<T>(step.eps)),
        kept(constant<T>(1.0 - step.learning_rate * step.weight_decay)) {}
};

template <class T>
WGRAD_INLINE void adamw_range(T* p, const T* g, T* m, T* v, int64_t begin, int64_t end,
                              const AdamWConstants<T>& c) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const T grad = c.grad_scale * g[i];
    const T first = c.beta1 * m[i] + c.one_minus_beta1 * grad;
    const T second = c.beta2 * v[i] + c.one_minus_beta2 * (grad * grad);
    m[i] = first;
    v[i] = second;
    const T update = c.step_size * (first / (std::sqrt(second) * c.inv_correction2 + c.eps));
    p[i] = p[i] * c.kept - update;
  }
}

WGRAD_MULTIVERSION void adamw_f32(float* p, const float* g, float* m, float* v, int64_t begin,
                                  int64_t end, const AdamWConstants<float>& constants) {
  const AdamWConstants<float> c = constants;
  adamw_range(p, g, m, v, begin, end, c);
}

}  // namespace

template <class T>
Sum<T> sum_squares(const T* x, int64_t n) {
  std::vector<Sum<T>> partial(static_cast<size_t>(ceil_div(n, kBlock)));
  parallel_blocks(n, kBlock, 1, [&](int64_t begin, int64_t end) {
    Sum<T>& sum = partial[static_cast<size_t>(begin / kBlock)];
    if constexpr (std::is_same_v<T, float>) {
      sum = sum_squares_f32(x + begin, end - begin);
    } else {
      sum = sum_squares_range(x + begin, end - begin);
    }
  });
  Sum<T> total(0);
  for (const Sum<T>& sum : partial) total += sum;
  return total;
}

template <class T>
void adamw_step(T* p, const T* g, T* m, T* v, int64_t n, const AdamWStep& step, double grad_scale) {
  const AdamWConstants<T> constants(step, grad_scale);
  parallel_blocks(n, kBlock, kWork, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      adamw_f32(p, g, m, v, begin, end, constants);
    } else {
      adamw_range(p, g, m, v, begin, end, constants);
    }
  });
}

#define WGRAD_INSTANTIATE(T)                         \
  template Sum<T> sum_squares<T>(const T*, int64_t); \
  template void adamw_step<T>(T*, const T*, T*, T*, int64_t, const AdamWStep&, double);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
