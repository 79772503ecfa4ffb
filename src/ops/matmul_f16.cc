#include "ops/matmul_f16.h"

#include <algorithm>
#include <vector>

#include "ops/f16_blocks.h"
#include "ops/gemm_source.h"
#include "ops/launch.h"
#include "ops/sum_parts.h"
#include "ops/window.h"

namespace wgrad::ops {

namespace {

/// Fewer blocks than this leave a large device idle.
constexpr int64_t kEnoughBlocks = 96;

/// Into how many parts the reduction may be cut: each has enough to do that its sums are worth a
/// pass of their own. For the large block, whose place smaller ones could take, that is more.
int64_t most_parts(const F16Product& p, bool large_block) {
  constexpr int64_t kMostParts = 8;
  if (p.low_rank) return 1;
  const int64_t least_chunks = large_block ? 256 : 32;
  return std::clamp<int64_t>(f16_padded(p.k) / 32 / least_chunks, 1, kMostParts);
}

/// The large block reuses most, unless it would be half empty.
GemmKernel choose_block(const Context& ctx, const F16Product& p) {
  const int64_t m = p.m, n = p.n;
  GemmKernel kernel;
  kernel.op = p.op;
  const int64_t rows_256 = ceil_div(m, 256) * 256, rows_128 = ceil_div(m, 128) * 128;
  const bool fits = kernel.workgroup_bytes() <= static_cast<int>(ctx.limits().max_workgroup_memory);
  if (fits && rows_256 * 9 <= rows_128 * 10 &&
      rows_256 / 256 * ceil_div(n, 128) * most_parts(p, true) >= kEnoughBlocks) {
    return kernel;
  }
  kernel.ring = false;
  if (m > 64 && rows_128 / 128 * ceil_div(n, 128) >= 2 * kEnoughBlocks) {
    kernel.bm = 128, kernel.bn = 128;
  } else if (m > 64) {
    kernel.bm = 128, kernel.bn = 64, kernel.wn = 32;
  } else {
    kernel.bm = 64, kernel.bn = 64, kernel.wm = 32, kernel.wn = 32;
  }
  return kernel;
}

/// The fewest parts that give enough blocks; their sums fit a binding.
int64_t choose_parts(const Context& ctx, const F16Product& p, const GemmKernel& kernel) {
  const int64_t blocks = ceil_div(p.m, kernel.bm) * ceil_div(p.n, kernel.bn);
  const int64_t wanted = std::min(most_parts(p, kernel.ring), ceil_div(kEnoughBlocks, blocks));
  return std::clamp<int64_t>(binding_limit(ctx) / (p.m * p.n * 4), 1, wanted);
}

/// Blocks of 16 of an operand along the output.
int64_t blocks_along_output(const F16Operand& operand, bool reduction_along_columns) {
  const int64_t columns = f16_padded(operand.columns);
  return (reduction_along_columns ? operand.blocks.size() / columns : columns) / 16;
}

/// The product, or `parts` parts of it: then C is [parts, m, n], without bias and not added to.
void launch_product(Context& ctx, const F16Product& p, GemmKernel kernel, int64_t a_column,
                    int64_t parts) {
  const Window c = window(p.c);
  const Window bias = window(p.bias);
  const Window b_scales = window(p.b.scales);

  GemmParams params{};
  params.m = static_cast<uint32_t>(p.m);
  params.n = static_cast<uint32_t>(p.n);
  params.tiles_m = static_cast<uint32_t>(ceil_div(p.m, kernel.bm));
  params.tiles_n = static_cast<uint32_t>(ceil_div(p.n, kernel.bn));
  params.ldc = static_cast<uint32_t>(p.ldc);
  params.c_offset = c.offset + static_cast<uint32_t>(p.c_column);
  params.bias_offset = bias.offset;
  params.accumulate = p.accumulate ? 1 : 0;
  params.all_chunks = static_cast<uint32_t>(f16_padded(p.k) / 32);
  params.chunks = static_cast<uint32_t>(ceil_div(params.all_chunks, parts));
  params.a_blocks = static_cast<uint32_t>(blocks_along_output(p.a, p.op != MatmulOp::kTN) -
                                          (p.op == MatmulOp::kTN ? a_column / 16 : 0));
  params.b_blocks = static_cast<uint32_t>(blocks_along_output(p.b, p.op == MatmulOp::kNT));
  params.factor = p.alpha * p.b.scale;
  params.a_offset = static_cast<uint32_t>(a_column / 16 * 64);
  params.b_scale_offset = b_scales.offset;

  kernel.a_columns = f16_padded(p.a.columns);
  kernel.b_columns = f16_padded(p.b.columns);
  kernel.parts = parts > 1;
  kernel.chunks = p.op == MatmulOp::kTN || kernel.parts ? 0 : params.chunks;
  kernel.clamp_a = params.a_blocks < params.tiles_m * (kernel.bm / 16);
  kernel.clamp_b = params.b_blocks < params.tiles_n * (kernel.bn / 16);
  kernel.a_scale_per_row = p.a.per_row;
  kernel.b_scale = !p.b.scales   ? GemmKernel::ScaleB::kNone
                   : p.b.per_row ? GemmKernel::ScaleB::kPerColumn
                                 : GemmKernel::ScaleB::kOne;
  kernel.bias = static_cast<bool>(p.bias);
  kernel.store_vec4 = p.n % 4 == 0 && p.ldc % 4 == 0 && params.c_offset % 4 == 0;

  if (p.low_rank) {
    const LowRankTerm& term = p.low_rank;
    kernel.low_rank = term.padded_rank;
    params.low_rank_rows = static_cast<uint32_t>(term.rows);
    params.low_rank_columns = static_cast<uint32_t>(term.columns);
    params.low_rank_row = static_cast<uint32_t>(term.row);
    params.low_rank_column = static_cast<uint32_t>(term.column);
  }

  const gpu::KernelSpec& spec = gemm_kernel_spec(kernel);
  const auto workgroups = groups(int64_t{params.tiles_m} * params.tiles_n * parts);
  std::vector<Argument> arguments = {in(p.a.blocks), in(p.b.blocks), in(p.a.scales)};
  if (p.b.scales) arguments.push_back(in(b_scales.tensor));
  if (p.bias) arguments.push_back(in(bias.tensor));
  if (p.low_rank) {
    for (const Tensor* t : {&p.low_rank.small, &p.low_rank.scales, &p.low_rank.factor}) {
      arguments.push_back(in(*t));
    }
  }
  arguments.push_back(out(c.tensor));
  launch(ctx, spec, std::span<const Argument>(arguments), params, workgroups);
}

/// One product whose bindings are all within the limit; what it takes of A begins at `a_column`.
void run(Context& ctx, const F16Product& p, int64_t a_column) {
  const GemmKernel kernel = choose_block(ctx, p);
  const int64_t parts = choose_parts(ctx, p, kernel);
  if (parts == 1) return launch_product(ctx, p, kernel, a_column, 1);
  F16Product cut = p;
  cut.c = ctx.allocate({parts * p.m * p.n}, DType::kF32, "scratch/matmul_parts");
  cut.ldc = p.n;
  cut.c_column = 0;
  cut.bias = Tensor();
  cut.accumulate = false;
  launch_product(ctx, cut, kernel, a_column, parts);
  SumParts sum;
  sum.parts = parts;
  sum.m = p.m, sum.n = p.n;
  sum.c = p.c, sum.ldc = p.ldc, sum.c_column = p.c_column;
  sum.bias = p.bias;
  sum.accumulate = p.accumulate;
  sum_parts(ctx, cut.c, sum);
}

/// Rows [begin, begin + rows) of an operand, begin a multiple of 64.
F16Operand rows_of(const F16Operand& operand, int64_t begin, int64_t rows) {
  F16Operand part = operand;
  const int64_t first = f16_blocks_size(begin, operand.columns);
  // What lies beyond the rows is read by the last tile and not used.
  const int64_t tile_rows = ceil_div(rows, kF16TileRows) * kF16TileRows;
  const int64_t wanted = f16_blocks_size(tile_rows, operand.columns);
  part.blocks = operand.blocks.flat(first, std::min(operand.blocks.size() - first, wanted));
  part.rows = rows;
  if (operand.per_row) part.scales = operand.scales.flat(begin, rows);
  return part;
}

template <typename Part>
void in_parts(int64_t n, int64_t at_most, const Part& part) {
  for (int64_t begin = 0; begin < n; begin += at_most) part(begin, std::min(n, begin + at_most));
}

}  // namespace

bool has_f16_product(const Context& ctx) {
  const gpu::Features& f = ctx.features();
  return ctx.modelled() == DeviceKind::kGpu && f.subgroup_matrix_f16 && f.subgroup_min_size == 32 &&
         f.subgroup_max_size == 32;
}

int64_t f16_rows_at_once(const Context& ctx, int64_t columns) {
  return rows_per_binding(ctx, "matmul_f16", int64_t{1} << 40, f16_padded(columns) * 2,
                          kF16TileRows);
}

void product_f16(Context& ctx, const F16Product& p) {
  const int64_t m_step = rows_per_binding(ctx, "matmul_f16", p.m, p.ldc * 4);
  const int64_t b_rows = f16_rows_at_once(ctx, p.b.columns);
  const int64_t n_step = p.op == MatmulOp::kNT ? b_rows : p.n;
  const int64_t k_step = p.op == MatmulOp::kNN ? b_rows : p.k;
  in_parts(p.m, m_step, [&](int64_t m0, int64_t m1) {
    in_parts(p.n, n_step, [&](int64_t n0, int64_t n1) {
      in_parts(p.k, k_step, [&](int64_t k0, int64_t k1) {
        F16Product part = p;
        part.m = m1 - m0;
        part.n = n1 - n0;
        part.k = k1 - k0;
        if (p.op != MatmulOp::kTN) part.a = rows_of(p.a, m0, part.m);
        if (p.op == MatmulOp::kNT) part.b = rows_of(p.b, n0, part.n);
        if (p.op == MatmulOp::kNN) part.b = rows_of(p.b, k0, part.k);
        const int64_t first = m0 * p.ldc;
        part.c = p.c.flat(first, std::min(part.m * p.ldc, p.c.size() - first));
        part.c_column += n0;
        if (p.bias) part.bias = k0 == 0 ? p.bias.flat(n0, part.n) : Tensor();
        part.accumulate = p.accumulate || k0 > 0;
        part.low_rank.row += m0;
        part.low_rank.column += n0;
        if (k0 > 0) part.low_rank = {};
        run(ctx, part, p.op == MatmulOp::kTN ? m0 : p.a_column + k0);
      });
    });
  });
}

F16Operand pack_f16_right(Context& ctx, MatmulOp op, const Tensor& b) {
  return op == MatmulOp::kNT ? pack_f16_rows(ctx, b, b.dim(0), b.dim(1))
                             : pack_f16_scaled(ctx, b, b.dim(0), b.dim(1), amax_scale(ctx, b));
}

void matmul_f16_gpu(Context& ctx, MatmulOp op, int64_t m, int64_t n, int64_t k, const Tensor& a,
                    const Tensor& b, const Tensor& c, const MatmulOptions& options) {
  F16Product p;
  p.op = op;
  p.n = n;
  p.ldc = n;
  p.alpha = options.alpha;
  p.accumulate = options.accumulate;
  if (op == MatmulOp::kTN) {
    p.m = m;
    p.c = c;
    const Tensor a_scale = amax_scale(ctx, a), b_scale = amax_scale(ctx, b);
    const int64_t step = std::min(f16_rows_at_once(ctx, m), f16_rows_at_once(ctx, n));
    in_parts(k, step, [&](int64_t k0, int64_t k1) {
      p.k = k1 - k0;
      p.a = pack_f16_scaled(ctx, a.rows(k0, k1), p.k, m, a_scale);
      p.b = pack_f16_scaled(ctx, b.rows(k0, k1), p.k, n, b_scale);
      product_f16(ctx, p);
      p.accumulate = true;
    });
    return;
  }
  p.k = k;
  p.b = pack_f16_right(ctx, op, b);
  in_parts(m, f16_rows_at_once(ctx, k), [&](int64_t m0, int64_t m1) {
    p.m = m1 - m0;
    p.a = pack_f16_rows(ctx, a.rows(m0, m1), p.m, k);
    p.c = c.rows(m0, m1);
    product_f16(ctx, p);
  });
}

}  // namespace wgrad::ops
