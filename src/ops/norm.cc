#include "ops/norm.h"

#include <bit>

#include "cpu/rms_norm.h"
#include "ops/launch.h"

namespace wgrad::ops {
namespace {

// Mirrors RowParams of rms_norm.wgsl.
struct RowParams {
  uint32_t rows, n;
  float inv_n, eps;
  float weight_offset;
  uint32_t accumulate;
};
static_assert(sizeof(RowParams) == 24);

// Mirrors WeightParams of rms_norm.wgsl.
struct WeightParams {
  uint32_t rows, n;
  float inv_n;
  uint32_t rows_per_slot, first_group;
  float weight_offset;
  uint32_t accumulate;
};
static_assert(sizeof(WeightParams) == 28);

// Mirrors TotalParams of rms_norm.wgsl.
struct TotalParams {
  uint32_t groups, n;
};
static_assert(sizeof(TotalParams) == 8);

/// How a row of n elements lies on the invocations of a workgroup.
struct RowLayout {
  int64_t lanes;  ///< elements a Vec
  int64_t vecs;   ///< Vecs a row
  int64_t width;  ///< invocations a row
  int64_t held;   ///< Vecs an invocation keeps in registers

  explicit RowLayout(int64_t n) : lanes(vector_lanes(n)), vecs(n / lanes) {
    width = std::min<int64_t>(256, std::bit_ceil(static_cast<uint64_t>(vecs)));
    held = std::min<int64_t>(8, std::bit_ceil(static_cast<uint64_t>(ceil_div(vecs, width))));
  }
  int64_t rows_per_group() const { return 256 / width; }
};

gpu::KernelSpec row_kernel(const Context& ctx, const RowLayout& layout,
                           std::string_view entry_point) {
  gpu::KernelSpec kernel;
  kernel.source = "rms_norm";
  kernel.entry_point = entry_point;
  kernel.prelude = reduction_prelude(ctx.features(), layout.lanes) +
                   "const HELD: u32 = " + std::to_string(layout.held) + "u;\n";
  kernel.overrides = {{"WIDTH", static_cast<double>(layout.width)}};
  return kernel;
}

RowParams row_params(int64_t rows, int64_t n, const RowLayout& layout, float eps,
                     float weight_offset, bool accumulate) {
  return {static_cast<uint32_t>(rows),
          static_cast<uint32_t>(layout.vecs),
          static_cast<float>(1.0 / static_cast<double>(n)),
          eps,
          weight_offset,
          accumulate ? 1u : 0u};
}

void backward_with_weight(Context& ctx, const Tensor& x, const Tensor& weight,
                          const Tensor& inv_rms, const Tensor& grad_y, const Tensor& grad_x,
                          bool accumulate, const Tensor& grad_weight, float weight_offset) {
  constexpr std::string_view kName = "rms_norm_backward";
  constexpr int64_t kFewestRows = 8, kMostGroups = 512, kTotalColumns = 16;
  const int64_t rows = x.dim(0), n = x.dim(1);
  const RowLayout layout(n);
  const int64_t rows_per_slot =
      std::max(kFewestRows, ceil_div(rows, kMostGroups * layout.rows_per_group()));
  const int64_t rows_per_group = rows_per_slot * layout.rows_per_group();
  const int64_t part = rows_per_binding(ctx, kName, rows, n * 4);
  const int64_t most_groups = ceil_div(rows, part) * ceil_div(std::min(rows, part), rows_per_group);
  const Tensor partial = ctx.allocate({most_groups, n}, DType::kF32, "scratch/rms_norm");

  const gpu::KernelSpec kernel = row_kernel(ctx, layout, "rms_norm_backward_weight");
  uint32_t groups = 0;
  for_row_parts(ctx, kName, rows, n * 4, [&](int64_t begin, int64_t end) {
    const uint32_t more = static_cast<uint32_t>(ceil_div(end - begin, rows_per_group));
    const RowParams row = row_params(end - begin, n, layout, 0.0f, weight_offset, accumulate);
    launch(ctx, kernel,
           {in(x.rows(begin, end)), in(weight), in(inv_rms.rows(begin, end)),
            in(grad_y.rows(begin, end)), out(grad_x.rows(begin, end)), out(partial)},
           WeightParams{row.rows, row.n, row.inv_n, static_cast<uint32_t>(rows_per_slot), groups,
                        row.weight_offset, row.accumulate},
           {more, 1, 1});
    groups += more;
  });
  const uint32_t columns = static_cast<uint32_t>(ceil_div(layout.vecs, kTotalColumns));
  launch(ctx, row_kernel(ctx, layout, "rms_norm_grad_weight_total"),
         {in(partial), out(grad_weight)}, TotalParams{groups, static_cast<uint32_t>(layout.vecs)},
         {columns, 1, 1});
}

}  // namespace

void rms_norm_forward(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& y,
                      const Tensor& inv_rms, float eps, float weight_offset) {
  constexpr std::string_view kName = "rms_norm_forward";
  expect_matrix(kName, "x", x, DType::kF32);
  const int64_t rows = x.dim(0), n = x.dim(1);
  expect_elements(kName, "weight", weight, DType::kF32, n);
  expect_tensor(kName, "y", y, DType::kF32, x.shape());
  expect_elements(kName, "inv_rms", inv_rms, DType::kF32, rows);
  if (x.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::rms_norm_forward(x.data<float>(), weight.data<float>(), y.data<float>(),
                          inv_rms.data<float>(), rows, n, static_cast<double>(eps),
                          static_cast<double>(weight_offset));
    return;
  }
  const RowLayout layout(n);
  const gpu::KernelSpec kernel = row_kernel(ctx, layout, kName);
  for_row_parts(ctx, kName, rows, n * 4, [&](int64_t begin, int64_t end) {
    launch(ctx, kernel,
           {in(x.rows(begin, end)), in(weight), out(y.rows(begin, end)),
            out(inv_rms.rows(begin, end))},
           row_params(end - begin, n, layout, eps, weight_offset, false),
           groups(ceil_div(end - begin, layout.rows_per_group())));
  });
}

void rms_norm_backward(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& inv_rms,
                       const Tensor& grad_y, const Tensor& grad_x, bool accumulate,
                       const Tensor& grad_weight, float weight_offset) {
  constexpr std::string_view kName = "rms_norm_backward";
  expect_matrix(kName, "x", x, DType::kF32);
  const int64_t rows = x.dim(0), n = x.dim(1);
  expect_elements(kName, "weight", weight, DType::kF32, n);
  expect_elements(kName, "inv_rms", inv_rms, DType::kF32, rows);
  expect_tensor(kName, "grad_y", grad_y, DType::kF32, x.shape());
  expect_tensor(kName, "grad_x", grad_x, DType::kF32, x.shape());
  if (grad_weight) expect_elements(kName, "grad_weight", grad_weight, DType::kF32, n);
  if (x.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::rms_norm_backward(x.data<float>(), weight.data<float>(), inv_rms.data<float>(),
                           grad_y.data<float>(), grad_x.data<float>(),
                           grad_weight ? grad_weight.data<float>() : nullptr, rows, n, accumulate,
                           static_cast<double>(weight_offset));
    return;
  }
  if (ctx.modelled() == DeviceKind::kCpu) return;
  if (grad_weight) {
    backward_with_weight(ctx, x, weight, inv_rms, grad_y, grad_x, accumulate, grad_weight,
                         weight_offset);
    return;
  }
  const RowLayout layout(n);
  const gpu::KernelSpec kernel = row_kernel(ctx, layout, kName);
  for_row_parts(ctx, kName, rows, n * 4, [&](int64_t begin, int64_t end) {
    launch(ctx, kernel,
           {in(x.rows(begin, end)), in(weight), in(inv_rms.rows(begin, end)),
            in(grad_y.rows(begin, end)), out(grad_x.rows(begin, end))},
           row_params(end - begin, n, layout, 0.0f, weight_offset, accumulate),
           groups(ceil_div(end - begin, layout.rows_per_group())));
  });
}

}  // namespace wgrad::ops
