#include "ops/gated_pack.h"

#include <array>
#include <iterator>
#include <string>

#include "gpu/kernel_text.h"
#include "ops/f16_blocks.h"
#include "ops/launch.h"
#include "ops/matmul_f16.h"
#include "ops/window.h"

namespace wgrad::ops {

namespace {

struct Params {
  uint32_t rows, units, padded_rows, column_blocks, scale_stride, unused[3];
};
static_assert(sizeof(Params) == 32);

/// Each row of scales is a binding of the product that takes its operand.
int64_t scale_stride(int64_t rows) { return ceil_div(rows, 64) * 64; }

Params params_for(int64_t rows, int64_t columns) {
  return {static_cast<uint32_t>(rows),
          static_cast<uint32_t>(columns / 8),
          static_cast<uint32_t>(f16_padded(rows)),
          static_cast<uint32_t>(f16_padded(columns) / 16),
          static_cast<uint32_t>(scale_stride(rows)),
          {}};
}

using Kernels = std::array<gpu::KernelSpec, std::size(kActivations)>;

Kernels make_kernels(std::string_view entry_point) {
  Kernels kernels;
  for (const Activation activation : kActivations) {
    gpu::KernelSpec& kernel = kernels.at(static_cast<size_t>(activation));
    kernel.source = "gated_pack";
    kernel.entry_point = entry_point;
    kernel.prelude = vector_prelude(4);
    kernel.prelude += activation_text(activation);
    for (const char* name : {"lib_powers", "lib_f16_blocks"}) {
      kernel.prelude += gpu::kernel_source(name);
    }
    kernel.permanent = true;
  }
  return kernels;
}

/// Row `index` of scales [3, scale_stride(rows)].
Tensor scales_of(const Tensor& scales, int64_t index, int64_t rows) {
  return scales.flat(index * scale_stride(rows), rows);
}

}  // namespace

bool gated_packs(const Context& ctx, int64_t rows, int64_t columns) {
  return ctx.compute() == ComputeType::kF16 && has_f16_product(ctx) && columns % 8 == 0 &&
         rows > 0 && rows * columns * 4 <= binding_limit(ctx) &&
         rows <= f16_rows_at_once(ctx, columns);
}

F16Operand gated_pack_forward(Context& ctx, Activation activation, const Tensor& gate,
                              const Tensor& up, GatedHalves& halves) {
  const int64_t rows = gate.dim(0), columns = gate.dim(1);
  expect_tensor("gated_pack_forward", "gate", gate, DType::kF32, {rows, columns});
  expect_tensor("gated_pack_forward", "up", up, DType::kF32, {rows, columns});
  halves.gate = ctx.allocate({rows, columns}, DType::kF16, "activations/gate");
  halves.up = ctx.allocate({rows, columns}, DType::kF16, "activations/up");
  halves.scales = ctx.allocate({3, scale_stride(rows)}, DType::kF32, "activations/gate");
  F16Operand activated = allocate_f16_rows(ctx, columns, scales_of(halves.scales, 2, rows));
  halves.activation = activation;
  static const Kernels kKernels = make_kernels("gated_pack_forward");
  launch(ctx, kKernels.at(static_cast<size_t>(activation)),
         {in(gate), in(up), out(halves.gate), out(halves.up), out(activated.blocks),
          out(halves.scales)},
         params_for(rows, columns), groups(f16_padded(rows)));
  return activated;
}

GatedGradients gated_pack_backward(Context& ctx, const GatedHalves& halves,
                                   const Tensor& grad_activated) {
  const int64_t rows = halves.gate.dim(0), columns = halves.gate.dim(1);
  expect_tensor("gated_pack_backward", "grad_activated", grad_activated, DType::kF32,
                {rows, columns});
  const Tensor scales = ctx.allocate({3, scale_stride(rows)}, DType::kF32, "scratch/f16_scales");
  GatedGradients out_operands{allocate_f16_rows(ctx, columns, scales_of(scales, 0, rows)),
                              allocate_f16_rows(ctx, columns, scales_of(scales, 1, rows)),
                              allocate_f16_rows(ctx, columns, scales_of(scales, 2, rows))};
  static const Kernels kKernels = make_kernels("gated_pack_backward");
  launch(ctx, kKernels.at(static_cast<size_t>(halves.activation)),
         {in(halves.gate), in(halves.up), in(halves.scales), in(grad_activated),
          out(out_operands.gate.blocks), out(out_operands.up.blocks),
          out(out_operands.activated.blocks), out(scales)},
         params_for(rows, columns), groups(f16_padded(rows)));
  return out_operands;
}

}  // namespace wgrad::ops
