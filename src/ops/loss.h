#pragma once

#include <functional>

#include "cpu/cross_entropy.h"
#include "ops/context.h"
#include "ops/linear.h"
#include "ops/tensor.h"

namespace wgrad::ops {

inline constexpr int32_t kIgnoreLabel = -100;

using cpu::LogitMap;
/// The outputs of a model's last layer, in place, become its logits.
void map_logits(Context& ctx, const Tensor& x, const LogitMap& map);

/// losses[t] = logsumexp(logits[t]) - logits[t, labels[t]]; 0 where the label is outside [0, V).
/// logits f32 [T, V], labels i32 [T], losses and logsumexp f32 [T].
void cross_entropy_forward(Context& ctx, const Tensor& logits, const Tensor& labels,
                           const Tensor& losses, const Tensor& logsumexp);
/// In place: logits <- (softmax - onehot) * scale, times the slope of the map that made them;
/// exactly 0 for rows that do not count.
void cross_entropy_backward(Context& ctx, const Tensor& logits, const Tensor& labels,
                            const Tensor& logsumexp, float scale, const LogitMap& map = {});

/// Linear, `map` and cross-entropy together, a chunk of rows at a time, so that the whole batch's
/// logits never exist. `hidden` f32 [N, H] holds counted rows only, labels i32 [N]. Sets losses
/// [N]; sets grad_hidden [N, H] (empty: loss only) with gradients times `scale`; adds to
/// grad_weight [V, H] (empty: frozen). `chunk` rows at a time, a multiple of 64 (0: as many as a
/// fixed memory holds): the losses of chunks of more than 8 rows have the same bits for any;
/// gradients are sums over the vocabulary or over rows, whose order may change with it.
void linear_cross_entropy(Context& ctx, const Tensor& hidden, const Weight& weight,
                          const Tensor& labels, float scale, const Tensor& losses,
                          const Tensor& grad_hidden, const Tensor& grad_weight,
                          const LogitMap& map = {}, int64_t chunk = 0);

/// A layer whose results are logits, where it is more than a weight.
struct OutputLayer {
  int64_t vocabulary = 0;
  LogitMap map;  ///< of its results
  /// Sets logits [n, vocabulary] of some rows x [n, H].
  std::function<void(const Tensor& x, const Tensor& logits)> forward;
  /// Follows the forward call for the same rows; sets grad_x [n, H] unless it is empty. Empty where
  /// nothing is trained.
  std::function<void(const Tensor& x, const Tensor& grad_logits, const Tensor& grad_x)> backward;
};
/// The same for such a layer, which adds to the gradients of its own parameters.
void linear_cross_entropy(Context& ctx, const Tensor& hidden, const OutputLayer& layer,
                          const Tensor& labels, float scale, const Tensor& losses,
                          const Tensor& grad_hidden, int64_t chunk = 0);

/// out[0] = sum of x, deterministic (f32 pairwise on the GPU, double on the CPU); added to out[0]
/// when accumulate.
void sum(Context& ctx, const Tensor& x, const Tensor& out, bool accumulate);

}  // namespace wgrad::ops
