#include "ops/loss.h"

#include <string>

#include "cpu/cross_entropy.h"
#include "gpu/kernel_text.h"
#include "ops/elementwise.h"
#include "ops/launch.h"

namespace wgrad::ops {
namespace {

// Mirrors ForwardParams of cross_entropy.wgsl.
struct ForwardParams {
  uint32_t seq_len, vocab_size, loss_start, loss_end;
};
static_assert(sizeof(ForwardParams) == 16);

// Mirrors BackwardParams of cross_entropy.wgsl.
struct BackwardParams {
  uint32_t seq_len, vocab_size, loss_start, loss_end;
  float scale;
};
static_assert(sizeof(BackwardParams) == 20);

// Mirrors Params of soft_cap.wgsl.
struct CapParams {
  uint32_t n;
  float factor, cap;
};
static_assert(sizeof(CapParams) == 12);

gpu::KernelSpec kernel_for(const Context& ctx, std::string_view entry_point, int64_t vocab) {
  gpu::KernelSpec kernel;
  kernel.source = "cross_entropy";
  kernel.entry_point = entry_point;
  kernel.prelude = reduction_prelude(ctx.features(), vector_lanes(vocab));
  return kernel;
}

}  // namespace

void map_logits(Context& ctx, const Tensor& x, const LogitMap& map) {
  constexpr std::string_view kName = "map_logits";
  const int64_t n = x.size();
  expect_elements(kName, "x", x, DType::kF32, n);
  if (n == 0 || map.is_identity()) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::map_logits(x.data<float>(), n, map);
    return;
  }
  if (map.soft_cap <= 0) {
    scale(ctx, x, static_cast<float>(map.scale));
    return;
  }
  gpu::KernelSpec kernel;
  kernel.source = kernel.entry_point = "soft_cap";
  kernel.prelude = vector_prelude(vector_lanes(n)) + std::string(gpu::kernel_source("lib_tanh"));
  for_row_parts(ctx, kName, n, 4, [&](int64_t begin, int64_t end) {
    const int64_t vecs = (end - begin) / vector_lanes(n);
    launch(ctx, kernel, {out(x.flat(begin, end - begin))},
           CapParams{static_cast<uint32_t>(vecs), static_cast<float>(map.scale / map.soft_cap),
                     static_cast<float>(map.soft_cap)},
           invocations(vecs));
  });
}

void cross_entropy_forward(Context& ctx, const Tensor& logits, const Tensor& labels,
                           const Tensor& losses, const Tensor& logsumexp) {
  constexpr std::string_view kName = "cross_entropy_forward";
  expect_matrix(kName, "logits", logits, DType::kF32);
  const int64_t rows = logits.dim(0), vocab = logits.dim(1);
  expect_elements(kName, "labels", labels, DType::kI32, rows);
  expect_elements(kName, "losses", losses, DType::kF32, rows);
  expect_elements(kName, "logsumexp", logsumexp, DType::kF32, rows);
  if (logits.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::cross_entropy_forward(logits.data<float>(), labels.data<int32_t>(), losses.data<float>(),
                               logsumexp.data<float>(), rows, vocab);
    return;
  }
  const gpu::KernelSpec kernel = kernel_for(ctx, kName, vocab);
  for_row_parts(ctx, kName, rows, vocab * 4, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    const ForwardParams params{static_cast<uint32_t>(count), static_cast<uint32_t>(vocab), 0,
                               static_cast<uint32_t>(count)};
    launch(ctx, kernel,
           {in(logits.rows(begin, end)), in(labels.flat(begin, count)),
            out(losses.flat(begin, count)), out(logsumexp.flat(begin, count))},
           params, groups(count));
  });
}

void cross_entropy_backward(Context& ctx, const Tensor& logits, const Tensor& labels,
                            const Tensor& logsumexp, float scale, const LogitMap& map) {
  constexpr std::string_view kName = "cross_entropy_backward";
  expect_matrix(kName, "logits", logits, DType::kF32);
  const int64_t rows = logits.dim(0), vocab = logits.dim(1);
  expect_elements(kName, "labels", labels, DType::kI32, rows);
  expect_elements(kName, "logsumexp", logsumexp, DType::kF32, rows);
  if (logits.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::cross_entropy_backward(logits.data<float>(), labels.data<int32_t>(),
                                logsumexp.data<float>(), rows, vocab, scale, map);
    return;
  }
  gpu::KernelSpec kernel = kernel_for(ctx, kName, vocab);
  if (map.soft_cap > 0) kernel.overrides = {{"LOGIT_CAP", map.soft_cap}};
  for_row_parts(ctx, kName, rows, vocab * 4, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    const BackwardParams params{static_cast<uint32_t>(count), static_cast<uint32_t>(vocab), 0,
                                static_cast<uint32_t>(count),
                                scale * static_cast<float>(map.scale)};
    launch(ctx, kernel,
           {out(logits.rows(begin, end)), in(labels.flat(begin, count)),
            in(logsumexp.flat(begin, count))},
           params, groups(count));
  });
}

}  // namespace wgrad::ops
