#pragma once

#include <cstdint>

namespace wgrad::cpu {

/// How the operands of a product lie in memory; all are row-major.
///   kNT: C[M,N] = A[M,K] B[N,K]^T   (a linear layer forward)
///   kNN: C[M,N] = A[M,K] B[K,N]     (its gradient by the input)
///   kTN: C[M,N] = A[K,M]^T B[K,N]   (its gradient by the weight)
enum class MatmulOp { kNT, kNN, kTN };

/// C = alpha op(A, B), or C += alpha op(A, B) if `accumulate`.
///
/// `lda`, `ldb`, `ldc` are the distances between rows in elements. K = 0 sets C to zero (or leaves
/// it, if accumulating). float goes through oneDNN; in double and complex each element is summed
/// in the order of k, starting from C when accumulating, so that splitting M, N or K (in order)
/// into several calls gives the same bits.
template <class T>
void matmul(MatmulOp op, int64_t m, int64_t n, int64_t k,  //
            const T* a, int64_t lda,                       //
            const T* b, int64_t ldb,                       //
            T* c, int64_t ldc, T alpha = T(1), bool accumulate = false);

}  // namespace wgrad::cpu
