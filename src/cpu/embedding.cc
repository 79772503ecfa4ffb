#include "cpu/embedding.h"

#include "cpu/instantiate.h"
#include "cpu/parallel.h"

namespace wgrad::cpu {

template <class T>
void embedding_forward(const uint32_t* ids, const T* table, T* out, int64_t tokens,
                       int64_t hidden) {
  parallel_for(tokens, hidden, [&](int64_t t) {
    const T* row = table + static_cast<int64_t>(ids[t]) * hidden;
    std::copy(row, row + hidden, out + t * hidden);
  });
}

template <class T>
void embedding_backward(const uint32_t* ids, const T* grad_out, T* grad_table, int64_t tokens,
                        int64_t hidden) {
  parallel_blocks(hidden, kColumnBlock, tokens, [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < tokens; ++t) {
      T* grad_row = grad_table + static_cast<int64_t>(ids[t]) * hidden;
      const T* grad = grad_out + t * hidden;
#pragma omp simd
      for (int64_t j = begin; j < end; ++j) grad_row[j] += grad[j];
    }
  });
}

#define WGRAD_INSTANTIATE(T)                                                           \
  template void embedding_forward<T>(const uint32_t*, const T*, T*, int64_t, int64_t); \
  template void embedding_backward<T>(const uint32_t*, const T*, T*, int64_t, int64_t);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
