#include "cpu/linear_cross_entropy.h"

#include <fmt/format.h>

#include <numeric>

#include "ops/elementwise.h"
#include "ops/launch.h"
#include "ops/loss.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

/// Logits that exist at once on a GPU: each chunk reads the whole weight, and needs rows enough to
/// fill a large device.
constexpr int64_t kLogitsBytes = int64_t{512} << 20;

/// Rows a chunk: what kLogitsBytes and a binding hold, in multiples of 64 so that views of the
/// per-row tensors are aligned.
int64_t chunk_rows(const Context& ctx, int64_t vocab) {
  if (ctx.modelled() == DeviceKind::kCpu) return cpu::linear_cross_entropy_chunk(vocab);
  const int64_t fit = rows_per_binding(ctx, "linear_cross_entropy", kLogitsBytes, vocab * 4);
  return std::max<int64_t>(64, std::min(fit, kLogitsBytes / (vocab * 4)) / 64 * 64);
}

}  // namespace

void linear_cross_entropy(Context& ctx, const Tensor& hidden, const Weight& weight,
                          const Tensor& labels, float scale, const Tensor& losses,
                          const Tensor& grad_hidden, const Tensor& grad_weight, const LogitMap& map,
                          int64_t chunk) {
  constexpr std::string_view kName = "linear_cross_entropy";
  const int64_t h = weight.in_features, vocab = weight.out_features;
  expect_matrix(kName, "hidden", hidden, DType::kF32);
  expect_tensor(kName, "hidden", hidden, DType::kF32, {hidden.dim(0), h});
  if (grad_weight) expect_tensor(kName, "grad_weight", grad_weight, DType::kF32, {vocab, h});
  OutputLayer layer;
  layer.vocabulary = vocab;
  layer.map = map;
  layer.forward = [&](const Tensor& x, const Tensor& logits) {
    linear_forward(ctx, x, weight, Tensor(), logits);
  };
  if (grad_hidden || grad_weight) {
    layer.backward = [&](const Tensor& x, const Tensor& grad_logits, const Tensor& grad_x) {
      if (grad_weight) linear_backward_weight(ctx, grad_logits, x, grad_weight);
      if (grad_x) linear_backward_input(ctx, grad_logits, weight, grad_x, false);
    };
  }
  linear_cross_entropy(ctx, hidden, layer, labels, scale, losses, grad_hidden, chunk);
}

void linear_cross_entropy(Context& ctx, const Tensor& hidden, const OutputLayer& layer,
                          const Tensor& labels, float scale, const Tensor& losses,
                          const Tensor& grad_hidden, int64_t chunk) {
  constexpr std::string_view kName = "linear_cross_entropy";
  expect_matrix(kName, "hidden", hidden, DType::kF32);
  const int64_t n = hidden.dim(0), vocab = layer.vocabulary;
  expect_elements(kName, "labels", labels, DType::kI32, n);
  expect_elements(kName, "losses", losses, DType::kF32, n);
  if (grad_hidden) expect_tensor(kName, "grad_hidden", grad_hidden, DType::kF32, hidden.shape());
  if (n == 0) return;

  chunk = std::min(n, chunk > 0 ? chunk : chunk_rows(ctx, vocab));
  Tensor logits = ctx.allocate({chunk, vocab}, DType::kF32, "scratch/logits");
  Tensor logsumexp = ctx.allocate({chunk}, DType::kF32, "scratch/logsumexp");
  for (int64_t begin = 0; begin < n; begin += chunk) {
    const int64_t end = std::min(n, begin + chunk), count = end - begin;
    const Tensor x = hidden.rows(begin, end);
    const Tensor y = logits.rows(0, count);
    const Tensor row_labels = labels.flat(begin, count);
    const Tensor row_lse = logsumexp.flat(0, count);
    layer.forward(x, y);
    map_logits(ctx, y, layer.map);
    cross_entropy_forward(ctx, y, row_labels, losses.flat(begin, count), row_lse);
    if (!layer.backward) continue;
    cross_entropy_backward(ctx, y, row_labels, row_lse, scale, layer.map);
    layer.backward(x, y, grad_hidden ? grad_hidden.rows(begin, end) : Tensor());
  }
}

}  // namespace wgrad::ops
