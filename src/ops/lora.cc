#include <algorithm>

#include "ops/launch.h"
#include "ops/linear.h"
#include "ops/lora_source.h"
#include "ops/matmul.h"
#include "ops/window.h"

namespace wgrad::ops {

namespace {

/// Fewer rows than this leave the kernels of lora_source.h mostly empty.
constexpr int64_t kFewestRows = 32;

/// Workgroups that keep a large device busy.
constexpr int64_t kWorkgroups = 256;

bool fits_binding(const Context& ctx, const Tensor& t) {
  return t.dtype() == DType::kF32 && t.rank() == 2 && t.byte_offset() % 256 == 0 &&
         t.bytes() <= binding_limit(ctx);
}

/// Whether the kernels of lora_source.h can take activations wide [m, width] and small [m, rank]
/// with a factor [rank, width], or [width, rank] where it is `transposed`; else the general
/// products do, which also report shapes that do not match.
bool fits(const Context& ctx, const Tensor& wide, const Tensor& small, const Tensor& factor,
          bool transposed) {
  if (ctx.modelled() != DeviceKind::kGpu || !fits_binding(ctx, wide) || !fits_binding(ctx, small) ||
      !fits_binding(ctx, factor)) {
    return false;
  }
  const int64_t m = wide.dim(0), width = wide.dim(1), rank = small.dim(1);
  return m >= kFewestRows && small.dim(0) == m && width > 0 && width % 4 == 0 &&
         (rank == 8 || rank == 16 || rank == 32) &&
         factor.shape() == (transposed ? Shape{width, rank} : Shape{rank, width});
}

LoraParams params_for(const Tensor& wide, float alpha) {
  LoraParams p{};
  p.m = static_cast<uint32_t>(wide.dim(0));
  p.width = static_cast<uint32_t>(wide.dim(1) / 4);
  p.alpha = alpha;
  return p;
}

/// Devices with narrow vectors run the written-out text no faster and compile it for seconds.
int64_t rows_at_once(const Context& ctx) {
  return ctx.features().subgroups && ctx.features().subgroup_min_size >= 16 ? 4 : 1;
}

/// small = alpha x factor^T, or alpha x factor where it is transposed.
void project(Context& ctx, const Tensor& x, const Tensor& factor, bool transposed, float alpha,
             const Tensor& small) {
  if (!fits(ctx, x, small, factor, transposed)) {
    matmul(ctx, transposed ? MatmulOp::kNN : MatmulOp::kNT, x, factor, small, {.alpha = alpha});
    return;
  }
  LoraKernel kernel{.step = LoraStep::kProject, .rank = small.dim(1), .transposed = transposed};
  while (kernel.row_groups < 4 && x.dim(0) >= 2 * kernel.project_rows() * kWorkgroups) {
    kernel.row_groups *= 2;
  }
  launch(ctx, lora_kernel(kernel), {in(x), in(factor), out(small)}, params_for(x, alpha),
         groups(ceil_div(x.dim(0), kernel.project_rows())));
}

/// y += alpha small factor, or alpha small factor^T where it is transposed.
void expand(Context& ctx, const Tensor& small, const Tensor& factor, bool transposed, float alpha,
            const Tensor& y) {
  if (!fits(ctx, y, small, factor, transposed)) {
    matmul(ctx, transposed ? MatmulOp::kNT : MatmulOp::kNN, small, factor, y,
           {.alpha = alpha, .accumulate = true});
    return;
  }
  constexpr int64_t kMostRows = 4 * kLoraRows;  // that share the factor in registers
  const int64_t column_groups = ceil_div(y.dim(1), kLoraColumns);
  const int64_t wanted = ceil_div(y.dim(0) * column_groups, 2 * kWorkgroups);
  LoraParams p = params_for(y, alpha);
  p.rows_per_group = static_cast<uint32_t>(
      std::clamp(ceil_div(wanted, kLoraRows) * kLoraRows, kLoraRows, kMostRows));
  const LoraKernel kernel{.step = LoraStep::kExpand,
                          .rank = small.dim(1),
                          .transposed = transposed,
                          .rows_at_once = rows_at_once(ctx)};
  launch(ctx, lora_kernel(kernel), {in(small), in(factor), out(y)}, p,
         groups(column_groups * ceil_div(y.dim(0), p.rows_per_group)));
}

/// One pass of kGradient: how the rows are cut, and where its parts lie in the scratch memory.
struct GradientPass {
  GradientPass(const Tensor& wide, int64_t rank, int64_t begin) : wide(wide), begin(begin) {
    constexpr int64_t kLeastRows = 64;  // of a part: fewer cost more to sum than they gain
    const int64_t m = wide.dim(0), column_groups = ceil_div(wide.dim(1), kLoraColumns);
    const int64_t wanted =
        std::clamp<int64_t>(ceil_div(kWorkgroups, column_groups), 1, ceil_div(m, kLeastRows));
    rows = ceil_div(ceil_div(m, wanted), kLoraRows) * kLoraRows;
    parts = ceil_div(m, rows);
    size = parts * rank * wide.dim(1);
    workgroups = parts * column_groups;
  }
  /// Elements to the next multiple of 256 bytes.
  int64_t end() const { return ceil_div(begin + size, 64) * 64; }

  void run(Context& ctx, const Tensor& small, const Tensor& scratch) const {
    LoraParams p = params_for(wide, 1.0f);
    p.rows_per_group = static_cast<uint32_t>(rows);
    p.parts = static_cast<uint32_t>(parts);
    launch(
        ctx,
        lora_kernel(
            {.step = LoraStep::kGradient, .rank = small.dim(1), .rows_at_once = rows_at_once(ctx)}),
        {in(wide), in(small), out(scratch.flat(begin, size))}, p, groups(workgroups));
  }

  const Tensor& wide;
  int64_t begin, rows = 0, parts = 0, size = 0, workgroups = 0;
};

/// grad_b += scale grad_y^T xa; grad_a += grad_xa^T x.
void add_gradients(Context& ctx, const Tensor& grad_y, const Tensor& xa, float scale,
                   const Tensor& grad_xa, const Tensor& x, const Tensor& grad_b,
                   const Tensor& grad_a) {
  if (!fits(ctx, x, grad_xa, grad_a, false) || !fits(ctx, grad_y, xa, grad_b, true)) {
    matmul(ctx, MatmulOp::kTN, grad_y, xa, grad_b, {.alpha = scale, .accumulate = true});
    matmul(ctx, MatmulOp::kTN, grad_xa, x, grad_a, {.accumulate = true});
    return;
  }
  const int64_t rank = xa.dim(1);
  const GradientPass of_b(grad_y, rank, 0), of_a(x, rank, of_b.end());
  const Tensor scratch = ctx.allocate({of_a.end()}, DType::kF32, "scratch/lora_parts");
  of_b.run(ctx, xa, scratch);
  of_a.run(ctx, grad_xa, scratch);
  LoraSumParams p{};
  p.width_b = static_cast<uint32_t>(grad_y.dim(1) / 4);
  p.width_a = static_cast<uint32_t>(x.dim(1) / 4);
  p.parts_b = static_cast<uint32_t>(of_b.parts);
  p.parts_a = static_cast<uint32_t>(of_a.parts);
  p.begin_a = static_cast<uint32_t>(of_a.begin / 4);
  p.alpha = scale;
  launch(ctx, lora_kernel({.step = LoraStep::kSum, .rank = rank}),
         {in(scratch), out(grad_b), out(grad_a)}, p, invocations(rank * (p.width_b + p.width_a)));
}

}  // namespace

void lora_forward(Context& ctx, const Tensor& x, const Tensor& a, const Tensor& b, float scale,
                  const Tensor& xa, const Tensor& y) {
  project(ctx, x, a, false, 1.0f, xa);
  expand(ctx, xa, b, true, scale, y);
}

void lora_backward(Context& ctx, const Tensor& x, const Tensor& xa, const Tensor& a,
                   const Tensor& b, float scale, const Tensor& grad_y, const Tensor& grad_xa,
                   const Tensor& grad_a, const Tensor& grad_b, const Tensor& grad_x) {
  project(ctx, grad_y, b, true, scale, grad_xa);
  add_gradients(ctx, grad_y, xa, scale, grad_xa, x, grad_b, grad_a);
  if (grad_x) expand(ctx, grad_xa, a, false, 1.0f, grad_x);
}

}  // namespace wgrad::ops
