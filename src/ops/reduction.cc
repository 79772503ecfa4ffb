#include <bit>
#include <cmath>

#include "cpu/optimizer.h"
#include "ops/launch.h"
#include "ops/loss.h"
#include "ops/optimizer.h"

namespace wgrad::ops {
namespace {

/// Stands for a norm that f32 does not hold.
constexpr float kNormSentinel = 3.4e38f;

// Mirrors PartialParams of reduction.wgsl.
struct PartialParams {
  uint32_t n, n_per_group, first_group;
};
static_assert(sizeof(PartialParams) == 12);

// Mirrors TotalParams of reduction.wgsl.
struct TotalParams {
  uint32_t groups;
  float max_norm;
};
static_assert(sizeof(TotalParams) == 8);

/// How one tensor is shared out over workgroups.
struct Shares {
  int64_t part;       ///< elements a binding
  int64_t per_group;  ///< elements a workgroup; at most 1024 workgroups where one binding does

  Shares(const Context& ctx, std::string_view function, int64_t n)
      : part(rows_per_binding(ctx, function, n, 4)),
        per_group(std::max<int64_t>(1 << 14, ceil_div(ceil_div(n, 1024), 64) * 64)) {}
  int64_t count(int64_t n) const {
    int64_t total = 0;
    for (int64_t begin = 0; begin < n; begin += part) {
      total += ceil_div(std::min(n - begin, part), per_group);
    }
    return total;
  }
};

gpu::KernelSpec kernel_for(const Context& ctx, std::string_view entry_point, int64_t n) {
  gpu::KernelSpec kernel;
  kernel.source = "reduction";
  kernel.entry_point = entry_point;
  kernel.prelude = reduction_prelude(ctx.features(), vector_lanes(n));
  return kernel;
}

/// Records the partial sums of x into `partial` from index `first` on; returns the index after
/// them.
uint32_t reduce_parts(Context& ctx, const gpu::KernelSpec& kernel, const Shares& shares,
                      const Tensor& x, const Tensor& partial, uint32_t first) {
  const int64_t n = x.size(), lanes = vector_lanes(n);
  for (int64_t begin = 0; begin < n; begin += shares.part) {
    const int64_t size = std::min(n - begin, shares.part);
    const uint32_t more = static_cast<uint32_t>(ceil_div(size, shares.per_group));
    const PartialParams params{static_cast<uint32_t>(size / lanes),
                               static_cast<uint32_t>(shares.per_group / lanes), first};
    launch(ctx, kernel, {in(x.flat(begin, size)), out(partial)}, params, {more, 1, 1});
    first += more;
  }
  return first;
}

bool is_finite(float v) { return (std::bit_cast<uint32_t>(v) & 0x7f800000u) != 0x7f800000u; }

void norm_on_cpu(std::span<const Tensor> grads, float loss, float max_norm, float* state) {
  double squares = 0.0;
  for (const Tensor& g : grads) squares += cpu::sum_squares(g.data<float>(), g.size());
  const double norm = std::sqrt(squares);
  const bool finite =
      std::isfinite(squares) && is_finite(static_cast<float>(norm)) && is_finite(loss);
  double factor = 1.0;
  if (max_norm > 0.0f) factor = std::min(1.0, static_cast<double>(max_norm) / (norm + 1e-6));
  state[0] = finite ? static_cast<float>(norm) : kNormSentinel;
  state[1] = finite ? static_cast<float>(factor) : 0.0f;
  state[2] = finite ? 1.0f : 0.0f;
  state[3] = loss;
}

}  // namespace

void sum(Context& ctx, const Tensor& x, const Tensor& total, bool accumulate) {
  constexpr std::string_view kName = "sum";
  const int64_t n = x.size();
  expect_elements(kName, "x", x, DType::kF32, n);
  expect_elements(kName, "out", total, DType::kF32, 1);
  if (ctx.kind() == DeviceKind::kCpu) {
    double result = accumulate ? static_cast<double>(*total.data<float>()) : 0.0;
    const float* values = x.data<float>();
    for (int64_t i = 0; i < n; ++i) result += static_cast<double>(values[i]);
    *total.data<float>() = static_cast<float>(result);
    return;
  }
  if (ctx.modelled() == DeviceKind::kCpu) return;
  const Shares shares(ctx, kName, n);
  Tensor partial =
      ctx.allocate({std::max<int64_t>(shares.count(n), 1)}, DType::kF32, "scratch/sum");
  gpu::KernelSpec kernel = kernel_for(ctx, "sum_partial", n);
  const uint32_t count = reduce_parts(ctx, kernel, shares, x, partial, 0);
  kernel.entry_point = "sum_total";
  kernel.overrides = {{"ACCUMULATE", accumulate ? 1.0 : 0.0}};
  launch(ctx, kernel, {in(partial), out(total)}, TotalParams{count, 0.0f}, {1, 1, 1});
}

void gradient_norm(Context& ctx, std::span<const Tensor> grads, const Tensor& loss, float max_norm,
                   const Tensor& state) {
  constexpr std::string_view kName = "gradient_norm";
  expect_elements(kName, "loss", loss, DType::kF32, 1);
  expect_elements(kName, "state", state, DType::kF32, 4);
  for (const Tensor& g : grads) expect_elements(kName, "gradient", g, DType::kF32, g.size());
  if (ctx.kind() == DeviceKind::kCpu) {
    norm_on_cpu(grads, *loss.data<float>(), max_norm, state.data<float>());
    return;
  }
  if (ctx.modelled() == DeviceKind::kCpu) return;
  int64_t partials = 0;
  for (const Tensor& g : grads) partials += Shares(ctx, kName, g.size()).count(g.size());
  Tensor partial =
      ctx.allocate({std::max<int64_t>(partials, 1), 4}, DType::kF32, "scratch/gradient_norm");
  uint32_t count = 0;
  for (const Tensor& g : grads) {
    count = reduce_parts(ctx, kernel_for(ctx, "norm_partial", g.size()),
                         Shares(ctx, kName, g.size()), g, partial, count);
  }
  launch(ctx, kernel_for(ctx, "norm_total", 4), {in(partial), in(loss), out(state)},
         TotalParams{count, max_norm}, {1, 1, 1});
}

}  // namespace wgrad::ops
