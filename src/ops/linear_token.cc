#include "ops/linear_token.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ops/f16_blocks.h"
#include "ops/launch.h"
#include "ops/window.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

constexpr std::string_view kFunction = "token_linears";

MatvecWeight format_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return MatvecWeight::kF32;
    case WeightFormat::kF16:
      return MatvecWeight::kF16;
    case WeightFormat::kF16Blocks:
      return MatvecWeight::kF16Blocks;
    case WeightFormat::kNF4:
      break;
  }
  return MatvecWeight::kNF4;
}

MatvecCall call_of(const Tensor& x, const TokenLinear& layer, bool accumulate) {
  const Weight& w = *layer.weight;
  MatvecCall call;
  call.weight = format_of(w.format);
  call.m = 1, call.n = w.out_features, call.k = w.in_features;
  call.x = x, call.y = layer.y, call.bias = layer.bias;
  call.ldx = call.k, call.ldy = call.n;
  call.alpha = w.format == WeightFormat::kF32 ? 1.0f : w.scale;
  call.accumulate = accumulate;
  const Window data = window(w.data);
  call.w = data.tensor;
  call.w_offset = data.offset / 8;
  call.w_stride =
      w.format == WeightFormat::kF16Blocks ? f16_padded(w.in_features) / 16 : w.in_features / 8;
  return call;
}

void run(Context& ctx, const Tensor& x, const MatvecNorm& norm, std::span<const TokenLinear> layers,
         bool accumulate, std::optional<Activation> gated) {
  std::array<MatvecCall, kMatvecMembers> calls;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Weight& w = *layers[i].weight;
    expect_tensor(kFunction, "x", x, DType::kF32, {1, w.in_features});
    if (!gated || i == 0) {
      expect_tensor(kFunction, "y", layers[i].y, DType::kF32, {1, w.out_features});
    }
    calls.at(i) = call_of(x, layers[i], accumulate);
    if (gated) calls[i].y = layers[0].y;
  }
  if (!run_matvecs(ctx, std::span(calls.data(), layers.size()), norm, gated)) {
    throw runtime_failure(kFunction, fmt::format("{} layers", layers.size()),
                          "expected layers that fits_token_linears accepts");
  }
}

// Mirrors Term and Params of lora_token.wgsl.
struct ExpandTerm {
  uint32_t end, x_offset, b_offset, y_offset;
};
struct ExpandParams {
  ExpandTerm terms[kMatvecMembers];
  uint32_t rank;
  float scale;
  uint32_t unused[2];
};
static_assert(sizeof(ExpandParams) == 64);

}  // namespace

bool fits_token_linears(const Context& ctx, std::span<const TokenLinear> layers, bool norm) {
  if (ctx.modelled() != DeviceKind::kGpu || layers.empty() || layers.size() > kMatvecMembers) {
    return false;
  }
  const Weight& first = *layers[0].weight;
  for (const TokenLinear& layer : layers) {
    const Weight& w = *layer.weight;
    if (w.format != first.format || w.format == WeightFormat::kNF4 ||
        w.in_features != first.in_features || w.in_features % 8 != 0 ||
        w.data.bytes() > binding_limit(ctx) || window(w.data).offset % 8 != 0 ||
        static_cast<bool>(layer.bias) != static_cast<bool>(layers[0].bias)) {
      return false;
    }
  }
  const size_t bindings = 2 + (norm ? 1 : 0) + layers.size() * (layers[0].bias ? 2 : 1);
  return bindings <= ctx.limits().max_storage_buffers;
}

void token_linears(Context& ctx, const Tensor& x, const MatvecNorm& norm,
                   std::span<const TokenLinear> layers, bool accumulate) {
  run(ctx, x, norm, layers, accumulate, {});
}

void token_gated(Context& ctx, Activation activation, const Tensor& x, const MatvecNorm& norm,
                 const TokenLinear& gate, const TokenLinear& up) {
  const std::array<TokenLinear, 2> layers = {gate, up};
  run(ctx, x, norm, layers, false, activation);
}

void token_expand(Context& ctx, std::span<const TokenExpand> terms, float scale) {
  ExpandParams p{};
  p.rank = static_cast<uint32_t>(terms[0].xa.dim(1));
  p.scale = scale;
  std::array<Tensor, kMatvecMembers> factors;
  Tensor x, y;
  uint32_t rows = 0;
  for (size_t i = 0; i < kMatvecMembers; ++i) {
    if (i < terms.size()) {
      const TokenExpand& term = terms[i];
      expect_tensor("token_expand", "xa", term.xa, DType::kF32, {1, int64_t{p.rank}});
      expect_tensor("token_expand", "b", term.b, DType::kF32, {term.y.size(), int64_t{p.rank}});
      const Window b = window(term.b);
      const Tensor this_x = from_storage_start(term.xa), this_y = from_storage_start(term.y);
      if (!x || this_x.size() > x.size()) x = this_x;
      if (!y || this_y.size() > y.size()) y = this_y;
      factors.at(i) = b.tensor;
      rows += static_cast<uint32_t>(term.y.size());
      p.terms[i] = {rows, static_cast<uint32_t>(this_x.size() - term.xa.size()), b.offset,
                    static_cast<uint32_t>(this_y.size() - term.y.size())};
    } else {
      factors.at(i) = factors[0];
      p.terms[i].end = rows;
    }
  }
  gpu::KernelSpec kernel;
  kernel.source = "lora_token";
  kernel.entry_point = "lora_token_expand";
  launch(ctx, kernel, {in(x), in(factors[0]), in(factors[1]), in(factors[2]), out(y)}, p,
         invocations(rows));
}

}  // namespace wgrad::ops
