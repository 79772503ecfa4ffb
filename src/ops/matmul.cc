#include "ops/matmul.h"

#include <fmt/format.h>

#include "cpu/matmul.h"
#include "ops/elementwise.h"
#include "ops/matmul_f16.h"
#include "ops/matmul_f32.h"
#include "wgrad/error.h"

namespace wgrad::ops {

namespace {

struct Sizes {
  int64_t m, n, k;
};

Sizes check(MatmulOp op, const Tensor& a, const Tensor& b, const Tensor& c) {
  const bool f32 = a.dtype() == DType::kF32 && b.dtype() == DType::kF32 && c.dtype() == DType::kF32;
  if (f32 && a.rank() == 2 && b.rank() == 2 && c.rank() == 2) {
    const Sizes s = op == MatmulOp::kTN   ? Sizes{a.dim(1), b.dim(1), a.dim(0)}
                    : op == MatmulOp::kNT ? Sizes{a.dim(0), b.dim(0), a.dim(1)}
                                          : Sizes{a.dim(0), b.dim(1), a.dim(1)};
    const int64_t other_k = op == MatmulOp::kNT ? b.dim(1) : b.dim(0);
    if (s.k == other_k && c.dim(0) == s.m && c.dim(1) == s.n) return s;
  }
  static constexpr const char* kExpected[] = {
      "f32 A[M,K], B[N,K], C[M,N]", "f32 A[M,K], B[K,N], C[M,N]", "f32 A[K,M], B[K,N], C[M,N]"};
  throw runtime_failure("matmul",
                        fmt::format("{}, {} and {}", a.describe(), b.describe(), c.describe()),
                        fmt::format("expected {}", kExpected[static_cast<int>(op)]));
}

cpu::MatmulOp cpu_op(MatmulOp op) {
  return op == MatmulOp::kNT   ? cpu::MatmulOp::kNT
         : op == MatmulOp::kNN ? cpu::MatmulOp::kNN
                               : cpu::MatmulOp::kTN;
}

}  // namespace

void matmul(Context& ctx, MatmulOp op, const Tensor& a, const Tensor& b, const Tensor& c,
            const MatmulOptions& options) {
  const Sizes s = check(op, a, b, c);
  if (s.m == 0 || s.n == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::matmul(cpu_op(op), s.m, s.n, s.k, a.data<float>(), a.dim(1), b.data<float>(), b.dim(1),
                c.data<float>(), c.dim(1), options.alpha, options.accumulate);
    return;
  }
  if (ctx.modelled() == DeviceKind::kCpu) return;
  if (s.k == 0) {
    if (!options.accumulate) fill_zero(ctx, c);
    return;
  }
  Product product;
  product.op = op;
  product.m = s.m, product.n = s.n, product.k = s.k;
  product.a = a, product.b = b, product.c = c;
  product.lda = a.dim(1), product.ldb = b.dim(1), product.ldc = c.dim(1);
  product.alpha = options.alpha;
  product.accumulate = options.accumulate;
  product_f32(ctx, product);
}

void matmul_f16(Context& ctx, MatmulOp op, const Tensor& a, const Tensor& b, const Tensor& c,
                const MatmulOptions& options) {
  if (!has_f16_product(ctx)) return matmul(ctx, op, a, b, c, options);
  const Sizes s = check(op, a, b, c);
  if (s.m == 0 || s.n == 0) return;
  if (s.k == 0) return matmul(ctx, op, a, b, c, options);
  matmul_f16_gpu(ctx, op, s.m, s.n, s.k, a, b, c, options);
}

}  // namespace wgrad::ops
