#include "ops/sum_parts.h"

#include "ops/launch.h"
#include "ops/window.h"

namespace wgrad::ops {

namespace {

struct Params {
  uint32_t count, n, parts, ldc;
  uint32_t c_offset, bias_offset, accumulate, has_bias;
  float alpha;
  uint32_t unused[3];
};
static_assert(sizeof(Params) == 48);

}  // namespace

void sum_parts(Context& ctx, const Tensor& partial, const SumParts& sum) {
  static const gpu::KernelSpec kSpec{"matmul_parts", "sum_parts", {}, {}, {}, true};
  const Window c = window(sum.c), bias = window(sum.bias);
  Params p{};
  p.count = static_cast<uint32_t>(sum.m * sum.n);
  p.n = static_cast<uint32_t>(sum.n);
  p.parts = static_cast<uint32_t>(sum.parts);
  p.ldc = static_cast<uint32_t>(sum.ldc);
  p.c_offset = c.offset + static_cast<uint32_t>(sum.c_column);
  p.bias_offset = bias.offset;
  p.has_bias = sum.bias ? 1 : 0;
  p.accumulate = sum.accumulate ? 1 : 0;
  p.alpha = sum.alpha;
  launch(ctx, kSpec, {in(partial), in(sum.bias ? bias.tensor : partial), out(c.tensor)}, p,
         invocations(sum.m * sum.n));
}

}  // namespace wgrad::ops
