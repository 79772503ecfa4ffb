#include "ops/matmul_f32.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/launch.h"
#include "ops/sum_parts.h"
#include "ops/tile_source.h"
#include "ops/window.h"
#include "wgrad/error.h"

namespace wgrad::ops {

namespace {

struct TileShape {
  int bm, bn, tm, tn;
};

/// Large tiles reuse more; small ones keep a device busy that has few tiles, and thin ones waste
/// nothing on the low-rank products of an adapter.
TileShape choose_tile(int64_t m, int64_t n) {
  constexpr int64_t kEnoughTiles = 64;
  if (n <= 16) return {128, 16, 4, 4};
  if (n <= 32) return {128, 32, 4, 4};
  if (m <= 16) return {16, 128, 4, 4};
  if (m <= 32) return {32, 128, 4, 4};
  if (m > 64 && n > 64 && ceil_div(m, 128) * ceil_div(n, 128) >= kEnoughTiles) {
    return {128, 128, 8, 8};
  }
  return {64, 64, 4, 4};
}

/// The reduction is cut where the output has too few tiles for a device.
int64_t choose_parts(int64_t tiles, int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kWorkgroups = 256, kShortestPart = 256;
  constexpr int64_t kScratchElements = int64_t{8} << 20;
  if (tiles >= kWorkgroups / 2) return 1;
  const int64_t parts = std::min({ceil_div(kWorkgroups, tiles), k / kShortestPart,
                                  kScratchElements / std::max<int64_t>(m * n, 1)});
  return std::max<int64_t>(parts, 1);
}

bool multiple_of_4(std::initializer_list<int64_t> values) {
  return std::all_of(values.begin(), values.end(), [](int64_t v) { return v % 4 == 0; });
}

TileKernel choose_kernel(const Context& ctx, const Product& p, const TileShape& shape,
                         const TileParams& params) {
  TileKernel kernel;
  kernel.op = p.op;
  kernel.bm = shape.bm, kernel.bn = shape.bn, kernel.tm = shape.tm, kernel.tn = shape.tn;
  kernel.pad = 1;
  if (kernel.workgroup_bytes() > static_cast<int>(ctx.limits().max_workgroup_memory)) {
    kernel.pad = 0;
  }
  const bool vectors = multiple_of_4({p.op == MatmulOp::kTN ? p.m : p.k, p.lda, params.a_offset,
                                      p.op == MatmulOp::kNT ? p.k : p.n, p.ldb, params.b_offset,
                                      p.n, params.ldc, params.c_offset});
  if (p.b.dtype() == DType::kF16) {
    if (!vectors) {
      throw runtime_failure("linear", "an f16 weight with a view that is not aligned",
                            "expected offsets and widths in multiples of 4");
    }
    kernel.access = TileAccess::kHalf4;
  } else if (!vectors) {
    kernel.access = TileAccess::kScalar;
  }
  kernel.guard = p.m % shape.bm != 0 || p.n % shape.bn != 0;
  kernel.tail_k = p.k % 16 != 0;
  // Devices with narrow vectors run the written-out text no faster and compile it for seconds.
  const bool wide = ctx.features().subgroups && ctx.features().subgroup_min_size >= 16;
  kernel.unroll = kernel.access == TileAccess::kScalar ? 1 : wide ? 16 : 1;
  kernel.store_loop = !wide;
  if (kernel.access == TileAccess::kScalar) kernel.guard = kernel.tail_k = true;
  return kernel;
}

/// One product whose bindings are all within the limit.
void run_tiles(Context& ctx, const Product& p) {
  const TileShape shape = choose_tile(p.m, p.n);
  const int64_t tiles_m = ceil_div(p.m, shape.bm), tiles_n = ceil_div(p.n, shape.bn);
  const int64_t wanted = choose_parts(tiles_m * tiles_n, p.m, p.n, p.k);
  const int64_t k_part =
      wanted > 1 ? ceil_div(ceil_div(p.k, wanted), 16) * 16 : std::max<int64_t>(p.k, 1);
  const int64_t parts = wanted > 1 ? ceil_div(p.k, k_part) : 1;

  const Window a = window(p.a), b = window(p.b), c = window(p.c);
  const Window bias = window(p.bias);
  Tensor scratch;
  if (parts > 1) scratch = ctx.allocate({parts, p.m, p.n}, DType::kF32, "scratch/matmul_parts");

  TileParams params{};
  params.m = static_cast<uint32_t>(p.m);
  params.n = static_cast<uint32_t>(p.n);
  params.k = static_cast<uint32_t>(p.k);
  params.k_part = static_cast<uint32_t>(k_part);
  params.lda = static_cast<uint32_t>(p.lda);
  params.ldb = static_cast<uint32_t>(p.ldb);
  params.a_offset = a.offset + static_cast<uint32_t>(p.a_column);
  params.b_offset = b.offset;
  params.bias_offset = bias.offset;
  params.tiles_m = static_cast<uint32_t>(tiles_m);
  params.tiles_n = static_cast<uint32_t>(tiles_n);
  const uint32_t c_offset = c.offset + static_cast<uint32_t>(p.c_column);
  if (parts > 1) {
    params.ldc = static_cast<uint32_t>(p.n);
    params.c_part = static_cast<uint32_t>(p.m * p.n);
    params.alpha = 1.0f;
  } else {
    params.ldc = static_cast<uint32_t>(p.ldc);
    params.c_offset = c_offset;
    params.alpha = p.alpha;
    params.flags = (p.accumulate ? kTileAccumulate : 0) | (p.bias ? kTileBias : 0);
  }

  const TileKernel kernel = choose_kernel(ctx, p, shape, params);
  const Tensor& target = parts > 1 ? scratch : c.tensor;
  const Tensor& bias_or_any = (params.flags & kTileBias) != 0 ? bias.tensor : a.tensor;
  launch(ctx, tile_kernel_spec(kernel), {in(a.tensor), in(b.tensor), in(bias_or_any), out(target)},
         params, groups(tiles_m * tiles_n * parts));
  if (parts == 1) return;

  SumParts sum;
  sum.parts = parts;
  sum.m = p.m, sum.n = p.n;
  sum.c = p.c, sum.bias = p.bias;
  sum.ldc = p.ldc, sum.c_column = p.c_column;
  sum.alpha = p.alpha;
  sum.accumulate = p.accumulate;
  sum_parts(ctx, scratch, sum);
}

struct SmallParams {
  uint32_t m, n, k, a_row, a_step, b_column, b_step, ldc;
  uint32_t a_offset, b_offset, c_offset, bias_offset;
  float alpha;
  uint32_t flags;
};
static_assert(sizeof(SmallParams) == 56);

/// Too little work for tiles: they would cost more to compile and to fill than they save.
bool is_small(const Product& p) {
  constexpr int64_t kProducts = int64_t{1} << 21, kLongest = 512;
  return p.k <= kLongest && p.m * p.n * p.k <= kProducts;
}

void run_small(Context& ctx, const Product& p) {
  const Window a = window(p.a), b = window(p.b), c = window(p.c), bias = window(p.bias);
  SmallParams params{};
  params.m = static_cast<uint32_t>(p.m);
  params.n = static_cast<uint32_t>(p.n);
  params.k = static_cast<uint32_t>(p.k);
  params.a_row = p.op == MatmulOp::kTN ? 1 : static_cast<uint32_t>(p.lda);
  params.a_step = p.op == MatmulOp::kTN ? static_cast<uint32_t>(p.lda) : 1;
  params.b_column = p.op == MatmulOp::kNT ? static_cast<uint32_t>(p.ldb) : 1;
  params.b_step = p.op == MatmulOp::kNT ? 1 : static_cast<uint32_t>(p.ldb);
  params.ldc = static_cast<uint32_t>(p.ldc);
  params.a_offset = a.offset + static_cast<uint32_t>(p.a_column);
  params.b_offset = b.offset;
  params.c_offset = c.offset + static_cast<uint32_t>(p.c_column);
  params.bias_offset = bias.offset;
  params.alpha = p.alpha;
  params.flags = (p.accumulate ? kTileAccumulate : 0) | (p.bias ? kTileBias : 0);
  gpu::KernelSpec spec{"matmul_small", "matmul_small", {}, {}, {}};
  spec.prelude = p.b.dtype() == DType::kF16
                     ? "fn b_at(i: u32) -> f32 { return unpack2x16float(b[i / 2u])[i % 2u]; }\n"
                     : "fn b_at(i: u32) -> f32 { return bitcast<f32>(b[i]); }\n";
  launch(ctx, spec,
         {in(a.tensor), in(b.tensor), in(p.bias ? bias.tensor : a.tensor), out(c.tensor)}, params,
         invocations(p.m * p.n));
}

void run(Context& ctx, const Product& p) {
  if (is_small(p)) return run_small(ctx, p);
  if (!matvec(ctx, p)) run_tiles(ctx, p);
}

/// Rows of a matrix that one binding holds, in whole tiles where that many fit. A window may begin
/// up to 252 bytes early.
int64_t rows_within(const Context& ctx, const Tensor& t, int64_t ld) {
  const int64_t row_bytes = ld * dtype_size(t.dtype()), rows = ceil_div(t.size(), ld);
  const int64_t fit = (binding_limit(ctx) - 256) / row_bytes;
  if (rows <= fit) return rows;
  if (fit < 1) {
    throw runtime_failure("matmul", fmt::format("rows of {} bytes", row_bytes),
                          fmt::format("this device binds at most {}", binding_limit(ctx)));
  }
  return fit >= 64 ? fit / 64 * 64 : fit >= 4 ? fit / 4 * 4 : fit;
}

/// `count` rows of a matrix from row `begin`, as a flat view.
Tensor rows_of(const Tensor& t, int64_t begin, int64_t count, int64_t ld) {
  const int64_t first = begin * ld;
  return t.flat(first, std::min(count * ld, t.size() - first));
}

/// Calls part(begin, end) for consecutive ranges of [0, n).
template <typename Part>
void in_parts(int64_t n, int64_t at_most, const Part& part) {
  for (int64_t begin = 0; begin < n; begin += at_most) part(begin, std::min(n, begin + at_most));
}

}  // namespace

void product_f32(Context& ctx, const Product& p) {
  if (p.m == 0 || p.n == 0) return;
  const int64_t a_rows = rows_within(ctx, p.a, p.lda);
  const int64_t b_rows = rows_within(ctx, p.b, p.ldb);
  const int64_t c_rows = rows_within(ctx, p.c, p.ldc);
  const int64_t k = std::max<int64_t>(p.k, 1);
  const int64_t m_step = p.op == MatmulOp::kTN ? c_rows : std::min(a_rows, c_rows);
  const int64_t n_step = p.op == MatmulOp::kNT ? b_rows : p.n;
  const int64_t k_step = p.op == MatmulOp::kNT   ? k
                         : p.op == MatmulOp::kNN ? b_rows
                                                 : std::min(a_rows, b_rows);
  in_parts(p.m, m_step, [&](int64_t m0, int64_t m1) {
    in_parts(p.n, n_step, [&](int64_t n0, int64_t n1) {
      in_parts(k, k_step, [&](int64_t k0, int64_t k1) {
        Product part = p;
        part.m = m1 - m0;
        part.n = n1 - n0;
        part.k = std::min(p.k, k1) - k0;
        if (p.op == MatmulOp::kTN) {
          part.a = rows_of(p.a, k0, part.k, p.lda);
          part.a_column += m0;
        } else {
          part.a = rows_of(p.a, m0, part.m, p.lda);
          part.a_column += k0;
        }
        part.b = p.op == MatmulOp::kNT ? rows_of(p.b, n0, part.n, p.ldb)
                                       : rows_of(p.b, k0, part.k, p.ldb);
        part.c = rows_of(p.c, m0, part.m, p.ldc);
        part.c_column += n0;
        if (p.bias) part.bias = k0 == 0 ? p.bias.flat(n0, part.n) : Tensor();
        part.accumulate = p.accumulate || k0 > 0;
        run(ctx, part);
      });
    });
  });
}

}  // namespace wgrad::ops
