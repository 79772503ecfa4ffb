#include "ops/nf4_product.h"

#include <algorithm>

#include "cpu/nf4.h"
#include "ops/f16_blocks.h"
#include "ops/launch.h"
#include "ops/nf4_matrix_source.h"
#include "ops/nf4_matvec_source.h"
#include "ops/sum_parts.h"
#include "ops/window.h"

namespace wgrad::ops {

namespace {

/// Workgroups that keep a large device busy.
constexpr int64_t kWorkgroups = 256;
constexpr int64_t kUnit = 32;  ///< elements in 16 bytes of codes

/// Whether whole rows are whole blocks of absmax, in one binding.
bool has_whole_rows(const Context& ctx, const Weight& w) {
  return w.in_features > 0 && w.in_features % cpu::kNf4Block == 0 &&
         w.data.bytes() <= binding_limit(ctx);
}

Nf4MatvecKernel choose_matvec(const Context& ctx, int64_t rows, int64_t n, int64_t units) {
  Nf4MatvecKernel kernel;
  kernel.rows = static_cast<int>(rows);
  const auto memory = static_cast<int>(ctx.limits().max_workgroup_memory);
  if (kernel.bytes() > memory) kernel.copies = 16;
  // Devices with narrow vectors run the written-out text no faster and compile it for seconds.
  kernel.unrolled = ctx.features().subgroups && ctx.features().subgroup_min_size >= 16;
  kernel.teams = 1;
  while (kernel.teams < 8 && ceil_div(n, kernel.group_rows()) < kWorkgroups &&
         units >= kUnit * 2 * kernel.teams) {
    kernel.teams *= 2;
  }
  return kernel;
}

/// How the reduction of a product on matrices is cut: enough workgroups for a large device, none
/// for a single round, and parts of 32 MiB in all.
struct MatrixParts {
  MatrixParts(int64_t m, int64_t n, int64_t strip_count, int64_t total) : strips(strip_count) {
    constexpr int64_t kEnough = 528, kMostBytes = int64_t{32} << 20;
    const int64_t wanted = std::min(kEnough / strips, kMostBytes / (m * n * 4));
    rounds = std::max<int64_t>(ceil_div(total, std::max<int64_t>(wanted, 1)), 2);
    count = ceil_div(total, rounds);
  }
  int64_t strips, rounds = 0, count = 0;
};

}  // namespace

bool nf4_takes_vectors(const Context& ctx, const Nf4Product& p) {
  constexpr int64_t kMostRows = 4;
  return ctx.modelled() == DeviceKind::kGpu && ctx.compute() == ComputeType::kF16 &&
         p.op == MatmulOp::kNT && p.m() <= kMostRows && has_whole_rows(ctx, p.weight) && p.x &&
         p.x.bytes() <= binding_limit(ctx) && window(p.x).offset % 4 == 0 &&
         Nf4MatvecKernel{.copies = 16}.bytes() <=
             static_cast<int>(ctx.limits().max_workgroup_memory);
}

void nf4_vector_product(Context& ctx, const Nf4Product& product) {
  const Weight& w = product.weight;
  const Window x = window(product.x), y = window(product.y), bias = window(product.bias);
  const int64_t units = w.in_features / kUnit;
  const Nf4MatvecKernel kernel = choose_matvec(ctx, product.m(), w.out_features, units);
  Nf4MatvecParams p{};
  p.n = static_cast<uint32_t>(w.out_features);
  p.units = static_cast<uint32_t>(units);
  p.ldx = static_cast<uint32_t>(w.in_features / 4);
  p.ldy = p.n;
  p.x_offset = x.offset / 4;
  p.y_offset = y.offset;
  p.bias_offset = bias.offset;
  p.accumulate = product.accumulate ? 1 : 0;
  p.has_bias = product.bias ? 1 : 0;
  p.absmax_offset = w.absmax_offset;
  p.one = 1;
  launch(ctx, nf4_matvec_kernel(kernel),
         {in(x.tensor), in(product.bias ? bias.tensor : x.tensor), out(y.tensor), in(w.data),
          in(w.absmax_codes), in(w.absmax_scales)},
         p, groups(ceil_div(w.out_features, kernel.group_rows())));
}

bool nf4_takes_matrices(const Context& ctx, const Nf4Product& p) {
  constexpr int64_t kMostRows = 64;
  return ctx.compute() == ComputeType::kF16 && has_f16_product(ctx) && p.m() <= kMostRows &&
         has_whole_rows(ctx, p.weight) && p.y.bytes() < binding_limit(ctx) &&
         f16_rows_at_once(ctx, p.k()) >= kF16TileRows &&
         kNf4MatrixBytes <= static_cast<int>(ctx.limits().max_workgroup_memory);
}

void nf4_matrix_product(Context& ctx, const Nf4Product& product) {
  const Weight& w = product.weight;
  const int64_t m = product.m(), n = product.n();
  const bool forward = product.op == MatmulOp::kNT;
  const F16Operand x = product.shared != nullptr ? product.shared->packed(ctx, 0, m)
                                                 : pack_f16_rows(ctx, product.x, m, product.k());
  const Nf4MatrixKernel kernel{product.op, static_cast<int>(ceil_div(m, 16))};
  const int64_t tile_rows = int64_t{kNf4TileRows} * kernel.tiles;
  const MatrixParts parts(
      m, n, ceil_div(n, forward ? tile_rows : kNf4TileColumns),
      forward ? ceil_div(w.in_features, kNf4TileColumns) : ceil_div(w.out_features, tile_rows));

  Nf4MatrixParams p{};
  p.m = static_cast<uint32_t>(m);
  p.out = static_cast<uint32_t>(w.out_features);
  p.units = static_cast<uint32_t>(w.in_features / kUnit);
  p.column_blocks = static_cast<uint32_t>(f16_padded(product.k()) / 16);
  p.strips = static_cast<uint32_t>(parts.strips);
  p.parts = static_cast<uint32_t>(parts.count);
  p.rounds = static_cast<uint32_t>(parts.rounds);
  p.ldc = static_cast<uint32_t>(n);
  p.part_stride = static_cast<uint32_t>(m * n);
  p.absmax_offset = w.absmax_offset;
  p.divisor = 1.0f / w.scale;
  p.factor = w.scale;
  const Window y = window(product.y), bias = window(product.bias);
  Tensor partial;
  if (parts.count > 1) {
    partial = ctx.allocate({parts.count, m, n}, DType::kF32, "scratch/nf4");
  } else {
    p.c_offset = y.offset;
    p.bias_offset = bias.offset;
    p.accumulate = product.accumulate ? 1 : 0;
    p.has_bias = product.bias ? 1 : 0;
  }
  launch(ctx, nf4_matrix_kernel(kernel),
         {in(x.blocks), in(x.scales), in(w.data), in(w.absmax_codes), in(w.absmax_scales),
          in(p.has_bias != 0 ? bias.tensor : x.scales), out(partial ? partial : y.tensor)},
         p, groups(parts.strips * parts.count));
  if (parts.count == 1) return;
  sum_parts(ctx, partial,
            {.parts = parts.count,
             .m = m,
             .n = n,
             .c = product.y,
             .bias = product.bias,
             .ldc = n,
             .accumulate = product.accumulate});
}

}  // namespace wgrad::ops
