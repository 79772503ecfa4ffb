#include "cpu/cross_entropy.h"

#include <cmath>

#include "cpu/elementwise.h"
#include "cpu/instantiate.h"
#include "cpu/parallel.h"
#include "cpu/row_sums.h"

namespace wgrad::cpu {
namespace {

/// log(1 + x), also where x is small.
template <class T>
WGRAD_INLINE T log_one_plus(const T& x) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::log1p(x);
  } else {
    return std::log(T(1) + x);
  }
}

/// loss = (max - logit) + log(sum): neither term is negative, and no digits are lost to the size of
/// the logits as they would be in lse - logit. The label's own exponential stays out of the f32
/// sums: it is 1 where the model is sure, and the loss is then what all the others come to.
template <class T>
WGRAD_INLINE void forward_row(const T* logits, int32_t label, T* loss, T* logsumexp,
                              int64_t vocab) {
  const T max = row_max(logits, vocab);
  if (!label_counts(label, vocab)) {
    *logsumexp = T(Sum<T>(max) + std::log(sum_exp(logits, vocab, max)));
    *loss = T(0);
    return;
  }
  const Sum<T> others =
      sum_exp(logits, label, max) + sum_exp(logits + label + 1, vocab - label - 1, max);
  const Sum<T> below_max = Sum<T>(max) - Sum<T>(logits[label]);
  const Sum<T> log_sum = log_one_plus(others + (std::exp(-below_max) - Sum<T>(1)));
  *logsumexp = T(Sum<T>(max) + log_sum);
  *loss = T(below_max + log_sum);
}

template <class T>
WGRAD_INLINE void cap_range(T* x, int64_t begin, int64_t end, T scale, T cap) {
#pragma omp simd
  for (int64_t j = begin; j < end; ++j) x[j] = cap * tanh_of<T>(scale * x[j] / cap);
}

/// The slope of a cap is 1 - (logit / cap)^2.
template <class T>
WGRAD_INLINE void capped_backward_row(T* logits, int32_t label, T logsumexp, int64_t vocab, T scale,
                                      T cap) {
  const T t_label = logits[label] / cap;
  const T at_label = (exp_of<T>(logits[label] - logsumexp) - T(1)) * scale;
#pragma omp simd
  for (int64_t j = 0; j < vocab; ++j) {
    const T t = logits[j] / cap;
    logits[j] = exp_of<T>(logits[j] - logsumexp) * scale * ((T(1) - t) * (T(1) + t));
  }
  logits[label] = at_label * ((T(1) - t_label) * (T(1) + t_label));
}

template <class T>
WGRAD_INLINE void backward_row(T* logits, int32_t label, T logsumexp, int64_t vocab, T scale,
                               T cap) {
  if (!label_counts(label, vocab)) {
    std::fill(logits, logits + vocab, T(0));
    return;
  }
  if (real_part(cap) > 0) return capped_backward_row(logits, label, logsumexp, vocab, scale, cap);
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
                                         int64_t vocab, float scale, float cap) {
  backward_row(logits, label, logsumexp, vocab, scale, cap);
}
WGRAD_MULTIVERSION void cap_range_f32(float* x, int64_t begin, int64_t end, float scale,
                                      float cap) {
  cap_range(x, begin, end, scale, cap);
}

}  // namespace

template <class T>
void map_logits(T* x, int64_t n, const LogitMap& map) {
  if (map.is_identity()) return;
  const T factor = constant<T>(map.scale), cap = constant<T>(map.soft_cap);
  if (map.soft_cap <= 0) return scale(x, factor, n);
  constexpr int64_t kBlock = 4096, kWork = 8;
  parallel_blocks(n, kBlock, kWork, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      cap_range_f32(x, begin, end, factor, cap);
    } else {
      cap_range(x, begin, end, factor, cap);
    }
  });
}

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
                            int64_t vocab, T scale, const LogitMap& map) {
  const T factor = scale * constant<T>(map.scale), cap = constant<T>(map.soft_cap);
  parallel_for(tokens, 8 * vocab, [&](int64_t t) {
    if constexpr (std::is_same_v<T, float>) {
      backward_row_f32(logits + t * vocab, labels[t], logsumexp[t], vocab, factor, cap);
    } else {
      backward_row(logits + t * vocab, labels[t], logsumexp[t], vocab, factor, cap);
    }
  });
}

#define WGRAD_INSTANTIATE(T)                                                                  \
  template void map_logits<T>(T*, int64_t, const LogitMap&);                                  \
                                                                                              \
  template void cross_entropy_forward<T>(const T*, const int32_t*, T*, T*, int64_t, int64_t); \
  template void cross_entropy_backward<T>(T*, const int32_t*, const T*, int64_t, int64_t, T,  \
                                          const LogitMap&);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
