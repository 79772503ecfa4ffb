#include "cpu/matmul.h"

#include <dnnl.h>

#include <complex>
#include <string>

#include "cpu/instantiate.h"
#include "cpu/parallel.h"
#include "wgrad/error.h"

namespace wgrad::cpu {
namespace {

/// An operand as strides, so that one loop serves all three forms.
struct Strides {
  int64_t row;     // M of A, K of B
  int64_t column;  // K of A, N of B
};

Strides strides_of_a(MatmulOp op, int64_t lda) {
  return op == MatmulOp::kTN ? Strides{1, lda} : Strides{lda, 1};
}

Strides strides_of_b(MatmulOp op, int64_t ldb) {
  return op == MatmulOp::kNT ? Strides{1, ldb} : Strides{ldb, 1};
}

template <class T>
void plain_matmul(MatmulOp op, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b,
                  int64_t ldb, T* c, int64_t ldc, T alpha, bool accumulate) {
  const Strides sa = strides_of_a(op, lda);
  const Strides sb = strides_of_b(op, ldb);
  parallel_for(m, n * k, [&](int64_t i) {
    T* row = c + i * ldc;
    if (!accumulate) std::fill(row, row + n, T(0));
    if (op == MatmulOp::kNT) {
      for (int64_t j = 0; j < n; ++j) {
        T sum = row[j];
        for (int64_t l = 0; l < k; ++l) sum += alpha * a[i * lda + l] * b[j * ldb + l];
        row[j] = sum;
      }
      return;
    }
    for (int64_t l = 0; l < k; ++l) {
      const T left = alpha * a[i * sa.row + l * sa.column];
      for (int64_t j = 0; j < n; ++j) row[j] += left * b[l * sb.row + j];
    }
  });
}

void onednn_matmul(MatmulOp op, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                   const float* b, int64_t ldb, float* c, int64_t ldc, float alpha,
                   bool accumulate) {
  const dnnl_status_t status = dnnl_sgemm(
      op == MatmulOp::kTN ? 'T' : 'N', op == MatmulOp::kNT ? 'T' : 'N', m, n, k, alpha, a,
      std::max<int64_t>(lda, 1), b, std::max<int64_t>(ldb, 1), accumulate ? 1.0f : 0.0f, c, ldc);
  if (status != dnnl_success) {
    throw runtime_failure("matmul",
                          "oneDNN returned status " + std::to_string(status) + " for " +
                              std::to_string(m) + " x " + std::to_string(n) + " x " +
                              std::to_string(k),
                          "success", "report it with the sizes");
  }
}

}  // namespace

template <class T>
void matmul(MatmulOp op, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b,
            int64_t ldb, T* c, int64_t ldc, T alpha, bool accumulate) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    for (int64_t i = 0; i < m && !accumulate; ++i) std::fill(c + i * ldc, c + i * ldc + n, T(0));
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    onednn_matmul(op, m, n, k, a, lda, b, ldb, c, ldc, alpha, accumulate);
  } else {
    plain_matmul(op, m, n, k, a, lda, b, ldb, c, ldc, alpha, accumulate);
  }
}

#define WGRAD_INSTANTIATE(T)                                                                \
  template void matmul<T>(MatmulOp, int64_t, int64_t, int64_t, const T*, int64_t, const T*, \
                          int64_t, T*, int64_t, T, bool);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
