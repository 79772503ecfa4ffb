#include "ops/column_sums.h"

#include <algorithm>

#include "ops/launch.h"
#include "ops/sum_parts.h"
#include "ops/window.h"

namespace wgrad::ops {

void add_column_sums(Context& ctx, const Tensor& x, const Tensor& sums) {
  constexpr int64_t kPartRows = 64, kColumns = 64;  // of a workgroup
  struct Params {
    uint32_t rows, n, x_offset, first_part;
  };
  static const gpu::KernelSpec kSpec{"column_sums", "column_sums", {}, {}, {}, true};
  const int64_t rows = x.dim(0), n = x.dim(1), parts = ceil_div(rows, kPartRows);
  const Tensor partial = ctx.allocate({parts, n}, DType::kF32, "scratch/column_sums");
  for_row_parts(ctx, "bias_backward", rows, n * 4, [&](int64_t begin, int64_t end) {
    const Window from = window(x.rows(begin, end));
    const Params p{static_cast<uint32_t>(end - begin), static_cast<uint32_t>(n), from.offset,
                   static_cast<uint32_t>(begin / kPartRows)};
    launch(ctx, kSpec, {in(from.tensor), out(partial)}, p,
           groups(ceil_div(end - begin, kPartRows) * ceil_div(n, kColumns)));
  });
  SumParts sum;
  sum.parts = parts;
  sum.m = 1;
  sum.n = n;
  sum.c = sums;
  sum.ldc = n;
  sum.accumulate = true;
  sum_parts(ctx, partial, sum);
}

}  // namespace wgrad::ops
