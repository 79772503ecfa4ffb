#include "cpu/dora.h"

#include "cpu/bias.h"
#include "cpu/instantiate.h"
#include "cpu/parallel.h"
#include "cpu/scalar.h"

namespace wgrad::cpu {

template <class T>
void dora_factors(const T* w, const T* magnitude, T* norm, T* factor, int64_t rows, int64_t n) {
  parallel_for(rows, n, [&](int64_t r) {
    Sum<T> squares(0);
    for (int64_t j = 0; j < n; ++j) squares += Sum<T>(w[r * n + j]) * Sum<T>(w[r * n + j]);
    norm[r] = T(std::sqrt(squares));
    factor[r] = real_part(norm[r]) > 0 ? magnitude[r] / norm[r] : T(0);
  });
}

template <class T>
void dora_forward(const T* u, const T* factor, const T* bias, T* y, T shift, int64_t rows,
                  int64_t n, bool accumulate) {
  parallel_for(rows, n, [&](int64_t r) {
    const T* from = u + r * n;
    T* to = y + r * n;
    for (int64_t j = 0; j < n; ++j) {
      T value = (factor[j] + shift) * from[j];
      if (bias != nullptr) value += bias[j];
      to[j] = accumulate ? to[j] + value : value;
    }
  });
}

template <class T>
void dora_backward(const T* grad_y, const T* factor, const T* norm, T* u, T* grad_u,
                   T* grad_magnitude, int64_t rows, int64_t n) {
  parallel_for(rows, n, [&](int64_t r) {
    for (int64_t j = 0; j < n; ++j) {
      const int64_t i = r * n + j;
      grad_u[i] = factor[j] * grad_y[i];
      u[i] = real_part(norm[j]) > 0 ? grad_y[i] * u[i] / norm[j] : T(0);
    }
  });
  bias_backward(u, grad_magnitude, rows, n);
}

#define WGRAD_INSTANTIATE(T)                                                                  \
  template void dora_factors<T>(const T*, const T*, T*, T*, int64_t, int64_t);                \
  template void dora_forward<T>(const T*, const T*, const T*, T*, T, int64_t, int64_t, bool); \
  template void dora_backward<T>(const T*, const T*, const T*, T*, T*, T*, int64_t, int64_t);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
