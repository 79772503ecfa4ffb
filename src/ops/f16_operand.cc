#include "ops/f16_operand.h"

#include <algorithm>
#include <string>

#include "ops/f16_blocks.h"
#include "ops/launch.h"
#include "ops/window.h"

namespace wgrad::ops {

namespace {

struct PackParams {
  uint32_t rows, columns, ld, x_offset, y_offset, scales_offset, column_blocks, row_blocks;
};
static_assert(sizeof(PackParams) == 32);

/// Binding 0 and load4 of pack_f16.wgsl.
const std::string& pack_prelude(bool vectors) {
  static const std::string vec4 =
      "@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;\n"
      "fn load4(row: u32, quad: u32) -> vec4<f32> {\n"
      "  if (quad * 4u >= p.columns) { return vec4<f32>(); }\n"
      "  return x[(p.x_offset + row * p.ld) / 4u + quad];\n"
      "}\n";
  static const std::string scalar =
      "@group(0) @binding(0) var<storage, read> x: array<f32>;\n"
      "fn load4(row: u32, quad: u32) -> vec4<f32> {\n"
      "  var v = vec4<f32>();\n"
      "  for (var j = 0u; j < 4u; j++) {\n"
      "    if (quad * 4u + j < p.columns) { v[j] = x[p.x_offset + row * p.ld + quad * 4u + j]; }\n"
      "  }\n"
      "  return v;\n"
      "}\n";
  return vectors ? vec4 : scalar;
}

gpu::KernelSpec pack_spec(std::string_view entry_point, bool vectors) {
  gpu::KernelSpec spec;
  spec.source = "pack_f16";
  spec.entry_point = entry_point;
  spec.prelude = pack_prelude(vectors);
  return spec;
}

void pack(Context& ctx, std::string_view entry_point, const Tensor& x, int64_t rows,
          int64_t columns, const Tensor& blocks, int64_t row, const Argument& scales,
          uint32_t scales_offset) {
  const Window from = window(x);
  PackParams p{};
  p.rows = static_cast<uint32_t>(rows);
  p.columns = static_cast<uint32_t>(columns);
  p.ld = p.columns;
  p.x_offset = from.offset;
  p.column_blocks = static_cast<uint32_t>(f16_padded(columns) / 16);
  p.row_blocks = static_cast<uint32_t>(f16_padded(rows) / 16);
  p.scales_offset = scales_offset;
  const int64_t first = f16_blocks_size(row, columns);
  const Tensor to = blocks.flat(first, f16_blocks_size(rows, columns));
  const bool vectors = columns % 4 == 0 && from.offset % 4 == 0;
  launch(ctx, pack_spec(entry_point, vectors), {in(from.tensor), out(to), scales}, p,
         groups(p.row_blocks));
}

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

F16Operand pack_f16_rows(Context& ctx, const Tensor& x, int64_t rows, int64_t columns) {
  F16Operand operand = allocate_operand(ctx, rows, columns);
  operand.scales = ctx.allocate({rows}, DType::kF32, "scratch/f16_scales");
  operand.per_row = true;
  // Parts of 64 rows start at multiples of 256 bytes of x and of the scales.
  for_row_parts(ctx, "matmul_f16", rows, row_bytes(columns), [&](int64_t begin, int64_t end) {
    pack(ctx, "pack_rows", x.flat(begin * columns, (end - begin) * columns), end - begin, columns,
         operand.blocks, begin, out(operand.scales), static_cast<uint32_t>(begin));
  });
  return operand;
}

Tensor amax_scale(Context& ctx, const Tensor& x) {
  constexpr int64_t kParts = 256;  // workgroups of one launch
  struct Params {
    uint32_t n, x_offset, first, count;
  };
  static const gpu::KernelSpec kPartsSpec{"amax_scale", "amax_parts", {}, {}, {}};
  static const gpu::KernelSpec kScaleSpec{"amax_scale", "amax_scale", {}, {}, {}};
  const int64_t step = rows_per_binding(ctx, "matmul_f16", x.size(), 4);
  const int64_t launches = std::max<int64_t>(ceil_div(x.size(), step), 1);
  const Tensor parts = ctx.allocate({launches * kParts}, DType::kU32, "scratch/amax");
  const Tensor scales = ctx.allocate({2}, DType::kF32, "scratch/f16_scales");
  for (int64_t i = 0; i < launches; ++i) {
    const int64_t begin = i * step, count = std::min(step, x.size() - begin);
    const Window from = window(x.flat(begin, count));
    const Params p{static_cast<uint32_t>(count), from.offset, static_cast<uint32_t>(i * kParts), 0};
    launch(ctx, kPartsSpec, {in(from.tensor), out(parts)}, p,
           {static_cast<uint32_t>(kParts), 1, 1});
  }
  const Params p{0, 0, 0, static_cast<uint32_t>(launches * kParts)};
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
    pack(ctx, "pack_scaled", x.flat(begin * columns, (end - begin) * columns), end - begin, columns,
         blocks, row + begin, in(scale), 0);
  });
}

}  // namespace wgrad::ops
