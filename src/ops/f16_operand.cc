#include "ops/f16_operand.h"

#include <algorithm>

#include "ops/f16_blocks.h"
#include "ops/launch.h"
#include "ops/pack_source.h"
#include "ops/window.h"

namespace wgrad::ops {

namespace {

struct PackParams {
  uint32_t rows, columns, ld, x_offset, y_offset, scales_offset, column_blocks, row_blocks;
};
static_assert(sizeof(PackParams) == 32);

/// The blocks of `rows` rows of x as rows [row, row + rows) of `blocks`, and their scales.
struct Pack {
  Window from;
  Tensor to;
  PackParams params{};
  bool vectors = false;

  Pack(const Tensor& x, int64_t rows, int64_t columns, const Tensor& blocks, int64_t row)
      : from(window(x)),
        to(blocks.flat(f16_blocks_size(row, columns), f16_blocks_size(rows, columns))),
        vectors(columns % 4 == 0 && from.offset % 4 == 0) {
    params.rows = static_cast<uint32_t>(rows);
    params.columns = params.ld = static_cast<uint32_t>(columns);
    params.x_offset = from.offset;
    params.column_blocks = static_cast<uint32_t>(f16_padded(columns) / 16);
    params.row_blocks = static_cast<uint32_t>(f16_padded(rows) / 16);
  }

  void run(Context& ctx, const gpu::KernelSpec& kernel, const Argument& scales,
           int64_t workgroups) const {
    launch(ctx, kernel, {in(from.tensor), out(to), scales}, params, groups(workgroups));
  }
  void run_blocks(Context& ctx, PackStep step, const Tensor& scales) const {
    run(ctx, pack_kernel(step, vectors), in(scales),
        params.row_blocks * ceil_div(params.column_blocks, 32));
  }
  void run_rows(Context& ctx, const Tensor& scales) const {
    const PackShape shape = pack_shape(params.columns);
    if (shape.lanes > 0) {
      run(ctx, pack_rows_kernel(shape, vectors), out(scales),
          params.row_blocks * 16 * shape.lanes / 256);
    } else {
      run(ctx, pack_kernel(PackStep::kRowPowers, vectors), out(scales), params.rows);
      run_blocks(ctx, PackStep::kPackPowers, scales);
    }
  }
};

/// Of a row in either form, the longer.
int64_t row_bytes(int64_t columns) { return std::max(columns * 4, f16_padded(columns) * 2); }

F16Operand allocate_operand(Context& ctx, int64_t rows, int64_t columns) {
  F16Operand operand;
  const int64_t tile_rows = ceil_div(rows, kF16TileRows) * kF16TileRows;
  operand.blocks =
      ctx.allocate({f16_blocks_size(tile_rows, columns)}, DType::kF16, "scratch/f16_operand");
  operand.rows = rows;
  operand.columns = columns;
  return operand;
}

}  // namespace

F16Operand allocate_f16_rows(Context& ctx, int64_t columns, const Tensor& scales) {
  F16Operand operand = allocate_operand(ctx, scales.size(), columns);
  operand.scales = scales;
  operand.per_row = true;
  return operand;
}

F16Operand pack_f16_rows(Context& ctx, const Tensor& x, int64_t rows, int64_t columns) {
  const F16Operand operand =
      allocate_f16_rows(ctx, columns, ctx.allocate({rows}, DType::kF32, "scratch/f16_scales"));
  // Parts of 64 rows start at multiples of 256 bytes of x and of the scales.
  for_row_parts(ctx, "matmul_f16", rows, row_bytes(columns), [&](int64_t begin, int64_t end) {
    Pack pack(x.flat(begin * columns, (end - begin) * columns), end - begin, columns,
              operand.blocks, begin);
    pack.params.scales_offset = static_cast<uint32_t>(begin);
    pack.run_rows(ctx, operand.scales);
  });
  return operand;
}

Tensor amax_scale(Context& ctx, const Tensor& x) {
  constexpr int64_t kMostParts = 1024;  // workgroups of one launch
  struct Params {
    uint32_t n, x_offset, first, count;
  };
  static const gpu::KernelSpec kPartsSpec{"amax_scale", "amax_parts", {}, {}, {}, true};
  static const gpu::KernelSpec kPartsSpec4{"amax_scale", "amax_parts_4", {}, {}, {}, true};
  static const gpu::KernelSpec kScaleSpec{"amax_scale", "amax_scale", {}, {}, {}, true};
  const int64_t step = rows_per_binding(ctx, "matmul_f16", x.size(), 4);
  const int64_t launches = std::max<int64_t>(ceil_div(x.size(), step), 1);
  const int64_t workgroups = std::clamp<int64_t>(ceil_div(x.size(), 4096), 1, kMostParts);
  const Tensor parts = ctx.allocate({launches * workgroups}, DType::kU32, "scratch/amax");
  const Tensor scales = ctx.allocate({2}, DType::kF32, "scratch/f16_scales");
  for (int64_t i = 0; i < launches; ++i) {
    const int64_t begin = i * step, count = std::min(step, x.size() - begin);
    const Window from = window(x.flat(begin, count));
    const Params p{static_cast<uint32_t>(count), from.offset, static_cast<uint32_t>(i * workgroups),
                   0};
    const bool vectors = count > 0 && count % 4 == 0 && from.offset % 4 == 0;
    launch(ctx, vectors ? kPartsSpec4 : kPartsSpec, {in(from.tensor), out(parts)}, p,
           groups(workgroups));
  }
  const Params p{0, 0, 0, static_cast<uint32_t>(launches * workgroups)};
  launch(ctx, kScaleSpec, {in(parts), out(scales)}, p, {1, 1, 1});
  return scales;
}

F16Operand pack_f16_scaled(Context& ctx, const Tensor& x, int64_t rows, int64_t columns,
                           const Tensor& scale) {
  F16Operand operand = allocate_operand(ctx, rows, columns);
  operand.scales = scale;
  pack_f16_into(ctx, x, rows, columns, scale, operand.blocks, 0);
  return operand;
}

void pack_f16_into(Context& ctx, const Tensor& x, int64_t rows, int64_t columns,
                   const Tensor& scale, const Tensor& blocks, int64_t row) {
  for_row_parts(ctx, "matmul_f16", rows, row_bytes(columns), [&](int64_t begin, int64_t end) {
    const Pack pack(x.flat(begin * columns, (end - begin) * columns), end - begin, columns, blocks,
                    row + begin);
    pack.run_blocks(ctx, PackStep::kPackScaled, scale);
  });
}

}  // namespace wgrad::ops
