#include "cpu/bias.h"

#include "cpu/instantiate.h"
#include "cpu/parallel.h"

namespace wgrad::cpu {

template <class T>
void add_bias(T* y, const T* bias, int64_t rows, int64_t n) {
  parallel_for(rows, n, [&](int64_t r) {
    T* row = y + r * n;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) row[j] += bias[j];
  });
}

template <class T>
void bias_backward(const T* grad_y, T* grad_bias, int64_t rows, int64_t n) {
  parallel_blocks(n, kColumnBlock, rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = grad_y + r * n;
#pragma omp simd
      for (int64_t j = begin; j < end; ++j) grad_bias[j] += row[j];
    }
  });
}

#define WGRAD_INSTANTIATE(T)                                 \
  template void add_bias<T>(T*, const T*, int64_t, int64_t); \
  template void bias_backward<T>(const T*, T*, int64_t, int64_t);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
