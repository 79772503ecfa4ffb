#include "cpu/matmul.h"

#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
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

/// One thread for what is called in this scope. Left to itself, oneDNN splits the sum over k by the
/// number of threads, and the rounding with it.
class OneThread {
 public:
  OneThread() : threads_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_;
};

/// A product cut along the longer side of C into strips, one serial call each (along m where the
/// sums are short: then reading A costs more than the arithmetic). The cut follows from
/// the sizes alone, so the result has the same bits for any number of threads.
struct Strips {
  Strips(int64_t m, int64_t n, int64_t k)
      : along_m(m > n || (m >= kNarrowest && k <= kShallow)), length(along_m ? m : n) {
    if (m * n * k < kParallelWork) return;
    while (count < kMostStrips && length >= 2 * count * kNarrowest) count *= 2;
    if (count == 1 && length >= 2 * kUnit) count = 2;
  }

  /// Where strip i begins: a multiple of the kernels' width, the strips as equal as that allows.
  int64_t begin(int64_t i) const {
    return i == count ? length : ceil_div(length, kUnit) * i / count * kUnit;
  }

  static constexpr int64_t kUnit = 16;
  static constexpr int64_t kNarrowest = 144;
  static constexpr int64_t kMostStrips = 32;
  static constexpr int64_t kShallow = 64;

  bool along_m;
  int64_t length;
  int64_t count = 1;
};

void onednn_matmul(MatmulOp op, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                   const float* b, int64_t ldb, float* c, int64_t ldc, float alpha,
                   bool accumulate) {
  const char trans_a = op == MatmulOp::kTN ? 'T' : 'N';
  const char trans_b = op == MatmulOp::kNT ? 'T' : 'N';
  const Strips strips(m, n, k);
  const int64_t step_a = strips.along_m ? strides_of_a(op, lda).row : 0;
  const int64_t step_b = strips.along_m ? 0 : strides_of_b(op, ldb).column;
  const int64_t step_c = strips.along_m ? ldc : 1;
  std::atomic<int> failure = dnnl_success;
  const auto strip = [&](int64_t i) {
    const OneThread one_thread;
    const int64_t begin = strips.begin(i);
    const int64_t size = strips.begin(i + 1) - begin;
    const dnnl_status_t status =
        dnnl_sgemm(trans_a, trans_b, strips.along_m ? size : m, strips.along_m ? n : size, k, alpha,
                   a + begin * step_a, lda, b + begin * step_b, ldb, accumulate ? 1.0f : 0.0f,
                   c + begin * step_c, ldc);
    if (status != dnnl_success) failure = status;
  };
  parallel_for(strips.count, kParallelWork, strip);
  if (failure != dnnl_success) {
    throw runtime_failure("matmul",
                          "oneDNN returned status " + std::to_string(failure) + " for " +
                              std::to_string(m) + " x " + std::to_string(n) + " x " +
                              std::to_string(k),
                          "success", "report it with these sizes");
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
    onednn_matmul(op, m, n, k, a, std::max<int64_t>(lda, 1), b, std::max<int64_t>(ldb, 1), c, ldc,
                  alpha, accumulate);
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
