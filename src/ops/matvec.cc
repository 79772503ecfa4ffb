#include "ops/matvec.h"

#include "ops/launch.h"
#include "ops/matmul_f32.h"
#include "ops/window.h"

namespace wgrad::ops {

bool fits_matvec(const MatvecCall& call) {
  return call.m <= kMatvecRows && call.k % 8 == 0 && call.k > 0 && call.ldx % 4 == 0 &&
         (window(call.x).offset + call.x_column) % 4 == 0;
}

void run_matvec(Context& ctx, const MatvecCall& call) {
  const MatvecKernel kernel{call.weight, static_cast<int>(call.m)};
  const Window x = window(call.x), y = window(call.y);
  const Window bias = window(call.bias);
  MatvecParams p{};
  p.n = static_cast<uint32_t>(call.n);
  p.units = static_cast<uint32_t>(call.k / 8);
  p.ldx = static_cast<uint32_t>(call.ldx / 4);
  p.ldy = static_cast<uint32_t>(call.ldy);
  p.x_offset = (x.offset + static_cast<uint32_t>(call.x_column)) / 4;
  p.y_offset = y.offset + static_cast<uint32_t>(call.y_column);
  p.bias_offset = bias.offset;
  p.w_offset = static_cast<uint32_t>(call.w_offset);
  p.w_stride = static_cast<uint32_t>(call.w_stride);
  p.origin = static_cast<uint32_t>(call.origin);
  p.accumulate = call.accumulate ? 1 : 0;
  p.has_bias = call.bias ? 1 : 0;
  p.alpha = call.alpha;
  p.absmax_offset = call.absmax_offset;
  const auto workgroups = groups(ceil_div(call.n, kernel.group_rows()));
  const Argument bias_argument = in(call.bias ? bias.tensor : x.tensor);
  const gpu::KernelSpec& spec = matvec_kernel_spec(kernel);
  if (call.weight == MatvecWeight::kNF4) {
    launch(ctx, spec,
           {in(x.tensor), bias_argument, out(y.tensor), in(call.w), in(call.absmax_codes),
            in(call.absmax_scales)},
           p, workgroups);
  } else {
    launch(ctx, spec, {in(x.tensor), bias_argument, out(y.tensor), in(call.w)}, p, workgroups);
  }
}

bool matvec(Context& ctx, const Product& p) {
  if (p.op != MatmulOp::kNT) return false;
  const Window b = window(p.b);
  MatvecCall call;
  call.weight = p.b.dtype() == DType::kF16 ? MatvecWeight::kF16 : MatvecWeight::kF32;
  call.m = p.m, call.n = p.n, call.k = p.k;
  call.x = p.a, call.y = p.c, call.bias = p.bias;
  call.ldx = p.lda, call.ldy = p.ldc;
  call.x_column = p.a_column, call.y_column = p.c_column;
  call.alpha = p.alpha;
  call.accumulate = p.accumulate;
  if (!fits_matvec(call) || p.ldb % 8 != 0 || b.offset % 8 != 0) return false;
  call.w = b.tensor;
  call.w_offset = b.offset / 8;
  call.w_stride = p.ldb / 8;
  run_matvec(ctx, call);
  return true;
}

}  // namespace wgrad::ops
