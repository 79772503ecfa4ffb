#pragma once

#include <cstdint>

namespace wgrad::cpu {

/// A label outside [0, vocab), such as -100, does not count.
inline bool label_counts(int32_t label, int64_t vocab) { return label >= 0 && label < vocab; }

/// What stands between a model's output layer and its logits: with y = scale x, the logit is
/// soft_cap tanh(y / soft_cap), or y where soft_cap is 0.
struct LogitMap {
  double scale = 1.0;
  double soft_cap = 0.0;

  bool is_identity() const { return scale == 1.0 && soft_cap <= 0.0; }
};

/// The outputs of the layer become logits.
template <class T>
void map_logits(T* x, int64_t n, const LogitMap& map);

/// lse = logsumexp(logits[t,:]); loss = lse - logits[t,label], never negative; 0 where the label
/// does not count (its lse is computed all the same). Sums are carried in blocks and compensated:
/// their error does not grow with the vocabulary.
template <class T>
void cross_entropy_forward(const T* logits,        // [tokens, vocab]
                           const int32_t* labels,  // [tokens]
                           T* losses,              // [tokens], set
                           T* logsumexp,           // [tokens], set
                           int64_t tokens, int64_t vocab);

/// In place: logits <- (exp(logit - lse) - [v = label]) scale, times the slope of `map` at the
/// logit; exactly 0 in rows whose label does not count.
template <class T>
void cross_entropy_backward(T* logits,              // [tokens, vocab], becomes the gradient
                            const int32_t* labels,  // [tokens]
                            const T* logsumexp,     // [tokens], from forward
                            int64_t tokens, int64_t vocab, T scale, const LogitMap& map = {});

}  // namespace wgrad::cpu
