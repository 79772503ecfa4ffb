#include "cpu/cross_entropy.h"

#include "cpu/instantiate.h"
#include "cpu/parallel.h"
#include "cpu/row_sums.h"

namespace wgrad::cpu {
namespace {

/// loss = (max - logit) + log(sum): neither term is negative, and no digits are lost to the size of
/// the logits as they would be in lse - logit.
template <class T>
WGRAD_INLINE void forward_row(const T* logits, int32_t label, T* loss, T* logsumexp,
                              int64_t vocab) {
  const T max = row_max(logits, vocab);
  const Sum<T> log_sum = std::log(sum_exp(logits, vocab, max));
  *logsumexp = T(Sum<T>(max) + log_sum);
  *loss = label_counts(label, vocab) ? T((Sum<T>(max) - Sum<T>(logits[label])) + log_sum) : T(0);
}

template <class T>
WGRAD_INLINE void backward_row(T* logits, int32_t label, T logsumexp, int64_t vocab, T scale) {
  if (!label_counts(label, vocab)) {
    std::fill(logits, logits + vocab, T(0));
    return;
  }
  const T at_label = exp_of<T>(logits[label] - logsumexp) - T(1);
#pragma omp simd
  for (int64_t j = 0; j < vocab; ++j) logits[j] = exp_of<T>(logits[j] - logsumexp) * scale;
  logits[label] = at_label * scale;
}

WGRAD_MULTIVERSION void forward_row_f32(const float* logits, int32_t label, float* loss,
                                        float* logsumexp, int64_t vocab) {
  forward_row(logits, label, loss, logsumexp, vocab);
}
WGRAD_MULTIVERSION void backward_row_f32(float* logits, int32_t label, float logsumexp,
                                         int64_t vocab, float scale) {
  backward_row(logits, label, logsumexp, vocab, scale);
}

}  // namespace

template <class T>
void cross_entropy_forward(const T* logits, const int32_t* labels, T* losses, T* logsumexp,
                           int64_t tokens, int64_t vocab) {
  parallel_for(tokens, 8 * vocab, [&](int64_t t) {
    if constexpr (std::is_same_v<T, float>) {
      forward_row_f32(logits + t * vocab, labels[t], losses + t, logsumexp + t, vocab);
    } else {
      forward_row(logits + t * vocab, labels[t], losses + t, logsumexp + t, vocab);
    }
  });
}

template <class T>
void cross_entropy_backward(T* logits, const int32_t* labels, const T* logsumexp, int64_t tokens,
                            int64_t vocab, T scale) {
  parallel_for(tokens, 8 * vocab, [&](int64_t t) {
    if constexpr (std::is_same_v<T, float>) {
      backward_row_f32(logits + t * vocab, labels[t], logsumexp[t], vocab, scale);
    } else {
      backward_row(logits + t * vocab, labels[t], logsumexp[t], vocab, scale);
    }
  });
}

#define WGRAD_INSTANTIATE(T)                                                                  \
  template void cross_entropy_forward<T>(const T*, const int32_t*, T*, T*, int64_t, int64_t); \
  template void cross_entropy_backward<T>(T*, const int32_t*, const T*, int64_t, int64_t, T);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
