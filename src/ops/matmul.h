#pragma once

#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// C[M,N] = alpha * op(A, B) (+ C when accumulate):
enum class MatmulOp : uint8_t {
  kNT,  ///< A[M,K] B[N,K]^T
  kNN,  ///< A[M,K] B[K,N]
  kTN,  ///< A[K,M]^T B[K,N]
};

struct MatmulOptions {
  float alpha = 1.0f;
  bool accumulate = false;  ///< add to C rather than set it
};

/// The plain product of f32 tensors, f32 throughout. Any sizes; deterministic. Splits what exceeds
/// the device's binding limit.
void matmul(Context& ctx, MatmulOp op, const Tensor& a, const Tensor& b, const Tensor& c,
            const MatmulOptions& options = {});

/// The same product with f16 operands made from the f32 inputs (scaled by exact powers of two, per
/// row where the reduction allows it, else per tensor, so that no value leaves f16's range) and f32
/// accumulation. Needs features().shader_f16 on a GPU; on the CPU it is matmul().
void matmul_f16(Context& ctx, MatmulOp op, const Tensor& a, const Tensor& b, const Tensor& c,
                const MatmulOptions& options = {});

}  // namespace wgrad::ops
