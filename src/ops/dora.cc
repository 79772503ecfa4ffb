#include "ops/dora.h"

#include <algorithm>
#include <bit>

#include "cpu/dora.h"
#include "ops/column_sums.h"
#include "ops/launch.h"
#include "ops/matmul.h"
#include "ops/weight.h"

namespace wgrad::ops {
namespace {

// Mirrors RowParams of dora.wgsl.
struct RowParams {
  uint32_t rows, n;
};
static_assert(sizeof(RowParams) == 8);

// Mirrors Params of dora.wgsl.
struct Params {
  uint32_t count, n;
  float shift;
};
static_assert(sizeof(Params) == 12);

/// Rows of a weight that exist in f32 at once: what a processor's caches hold, or what fills a
/// large GPU. Multiples of 64, so that views of the factors are aligned.
int64_t rows_at_once(const Context& ctx, int64_t rows, int64_t n) {
  const int64_t elements = int64_t{1} << (ctx.modelled() == DeviceKind::kCpu ? 18 : 24);
  const int64_t some = std::max<int64_t>(64, elements / n / 64 * 64);
  return std::min(some, rows_per_binding(ctx, "dora_factors", rows, n * 4));
}

gpu::KernelSpec column_kernel(std::string_view entry_point, int64_t n) {
  gpu::KernelSpec kernel;
  kernel.source = "dora";
  kernel.entry_point = entry_point;
  // The reductions are of the first entry point alone; a file has one prelude.
  kernel.prelude = reduction_prelude({}, vector_lanes(n));
  return kernel;
}

}  // namespace

void dora_row_factors(Context& ctx, const Tensor& w, const Tensor& magnitude,
                      const DoraFactors& factors) {
  constexpr std::string_view kName = "dora_factors";
  expect_matrix(kName, "w", w, DType::kF32);
  const int64_t rows = w.dim(0), n = w.dim(1);
  expect_elements(kName, "magnitude", magnitude, DType::kF32, rows);
  expect_elements(kName, "norm", factors.norm, DType::kF32, rows);
  expect_elements(kName, "factor", factors.factor, DType::kF32, rows);
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::dora_factors(w.data<float>(), magnitude.data<float>(), factors.norm.data<float>(),
                      factors.factor.data<float>(), rows, n);
    return;
  }
  const int64_t vecs = n / vector_lanes(n);
  const int64_t width = std::min<int64_t>(256, std::bit_ceil(static_cast<uint64_t>(vecs)));
  gpu::KernelSpec kernel;
  kernel.source = "dora";
  kernel.entry_point = kName;
  kernel.prelude = reduction_prelude(ctx.features(), vector_lanes(n));
  kernel.overrides = {{"WIDTH", static_cast<double>(width)}};
  for_row_parts(ctx, kName, rows, n * 4, [&](int64_t begin, int64_t end) {
    launch(ctx, kernel,
           {in(w.rows(begin, end)), in(magnitude.rows(begin, end)),
            out(factors.norm.rows(begin, end)), out(factors.factor.rows(begin, end))},
           RowParams{static_cast<uint32_t>(end - begin), static_cast<uint32_t>(vecs)},
           groups(ceil_div(end - begin, 256 / width)));
  });
}

void dora_factors(Context& ctx, const Weight& weight, const Tensor& a, const Tensor& b, float scale,
                  const Tensor& magnitude, const DoraFactors& factors) {
  const int64_t rows = weight.out_features, n = weight.in_features;
  const int64_t part = std::min(rows, rows_at_once(ctx, rows, n));
  const Tensor scratch = ctx.allocate({part, n}, DType::kF32, "scratch/dora");
  for (int64_t begin = 0; begin < rows; begin += part) {
    const int64_t end = std::min(rows, begin + part);
    const Tensor w = scratch.rows(0, end - begin);
    weight_rows_to_f32(ctx, weight, begin, w);
    matmul(ctx, MatmulOp::kNN, b.rows(begin, end), a, w, {.alpha = scale, .accumulate = true});
    dora_row_factors(ctx, w, magnitude.rows(begin, end),
                     {factors.norm.rows(begin, end), factors.factor.rows(begin, end)});
  }
}

void dora_forward(Context& ctx, const Tensor& u, const Tensor& factor, const Tensor& bias,
                  float shift, const Tensor& y, bool accumulate) {
  constexpr std::string_view kName = "dora_forward";
  expect_matrix(kName, "u", u, DType::kF32);
  const int64_t rows = u.dim(0), n = u.dim(1);
  expect_elements(kName, "factor", factor, DType::kF32, n);
  if (bias) expect_elements(kName, "bias", bias, DType::kF32, n);
  expect_tensor(kName, "y", y, DType::kF32, u.shape());
  if (u.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::dora_forward(u.data<float>(), factor.data<float>(), bias ? bias.data<float>() : nullptr,
                      y.data<float>(), shift, rows, n, accumulate);
    return;
  }
  gpu::KernelSpec kernel = column_kernel(kName, n);
  kernel.overrides = {{"ACCUMULATE", accumulate ? 1.0 : 0.0}, {"BIAS", bias ? 1.0 : 0.0}};
  const int64_t vecs = n / vector_lanes(n);
  for_row_parts(ctx, kName, rows, n * 4, [&](int64_t begin, int64_t end) {
    const Params params{static_cast<uint32_t>((end - begin) * vecs), static_cast<uint32_t>(vecs),
                        shift};
    launch(ctx, kernel,
           {in(u.rows(begin, end)), in(factor), in(bias ? bias : factor), out(y.rows(begin, end))},
           params, invocations(params.count));
  });
}

void dora_backward(Context& ctx, const Tensor& grad_y, const DoraFactors& factors, const Tensor& u,
                   const Tensor& grad_u, const Tensor& grad_magnitude) {
  constexpr std::string_view kName = "dora_backward";
  expect_matrix(kName, "grad_y", grad_y, DType::kF32);
  const int64_t rows = grad_y.dim(0), n = grad_y.dim(1);
  expect_elements(kName, "norm", factors.norm, DType::kF32, n);
  expect_elements(kName, "factor", factors.factor, DType::kF32, n);
  expect_tensor(kName, "u", u, DType::kF32, grad_y.shape());
  expect_tensor(kName, "grad_u", grad_u, DType::kF32, grad_y.shape());
  expect_elements(kName, "grad_magnitude", grad_magnitude, DType::kF32, n);
  if (u.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::dora_backward(grad_y.data<float>(), factors.factor.data<float>(),
                       factors.norm.data<float>(), u.data<float>(), grad_u.data<float>(),
                       grad_magnitude.data<float>(), rows, n);
    return;
  }
  if (ctx.modelled() == DeviceKind::kCpu) return;
  const gpu::KernelSpec kernel = column_kernel(kName, n);
  const int64_t vecs = n / vector_lanes(n);
  for_row_parts(ctx, kName, rows, n * 4, [&](int64_t begin, int64_t end) {
    const Params params{static_cast<uint32_t>((end - begin) * vecs), static_cast<uint32_t>(vecs),
                        0.0f};
    launch(ctx, kernel,
           {in(grad_y.rows(begin, end)), in(factors.factor), in(factors.norm),
            out(u.rows(begin, end)), out(grad_u.rows(begin, end))},
           params, invocations(params.count));
  });
  add_column_sums(ctx, u, grad_magnitude);
}

}  // namespace wgrad::ops
