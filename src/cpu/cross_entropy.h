#pragma once

#include <cstdint>

namespace wgrad::cpu {

/// A label outside [0, vocab), such as -100, does not count.
inline bool label_counts(int32_t label, int64_t vocab) { return label >= 0 && label < vocab; }

/// lse = logsumexp(logits[t,:]); loss = lse - logits[t,label], never negative; 0 where the label
/// does not count (its lse is computed all the same). Sums are carried in blocks and compensated:
/// their error does not grow with the vocabulary.
template <class T>
void cross_entropy_forward(const T* logits,        // [tokens, vocab]
                           const int32_t* labels,  // [tokens]
                           T* losses,              // [tokens], set
                           T* logsumexp,           // [tokens], set
                           int64_t tokens, int64_t vocab);

/// In place: logits <- (exp(logit - lse) - [v = label]) scale; exactly 0 in rows whose label does
/// not count.
template <class T>
void cross_entropy_backward(T* logits,              // [tokens, vocab], becomes the gradient
                            const int32_t* labels,  // [tokens]
                            const T* logsumexp,     // [tokens], from forward
                            int64_t tokens, int64_t vocab, T scale);

}  // namespace wgrad::cpu
