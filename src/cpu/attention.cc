#include "cpu/attention.h"

#include <vector>

#include "cpu/attention_tiles.h"
#include "cpu/instantiate.h"
#include "cpu/parallel.h"
#include "cpu/row_sums.h"

namespace wgrad::cpu {
namespace {

template <class T>
T dot(const T* a, const T* b, int64_t n) {
  T sum(0);
  for (int64_t j = 0; j < n; ++j) sum += a[j] * b[j];
  return sum;
}

template <class T>
void add_multiple(T* y, T alpha, const T* x, int64_t n) {
  for (int64_t j = 0; j < n; ++j) y[j] += alpha * x[j];
}

/// The score that the softmax takes.
template <class T>
T capped(const AttentionShape& shape, const T& score) {
  if (shape.soft_cap <= 0) return score;
  const T cap = constant<T>(shape.soft_cap);
  return cap * tanh_of<T>(score / cap);
}

template <class T>
void plain_forward(const AttentionShape& shape, const T* q, const T* k, const T* v,
                   const uint32_t* row_begin, T* out, T* logsumexp) {
  const T scale = constant<T>(shape.scale);
  parallel_for_dynamic(
      shape.query_heads, shape.queries * shape.queries * shape.head_dim, [&](int64_t head) {
        const HeadLayout at(shape, head);
        std::vector<T> scores(static_cast<size_t>(shape.keys));
        for (int64_t i = 0; i < shape.queries; ++i) {
          const KeyRange keys = keys_of(shape, row_begin, i);
          const int64_t count = keys.end - keys.begin;
          for (int64_t j = 0; j < count; ++j) {
            scores[static_cast<size_t>(j)] =
                capped(shape, scale * dot(q + at.q(i), k + at.kv(keys.begin + j), at.d));
          }
          const T max = row_max(scores.data(), count);
          const Sum<T> sum = sum_exp(scores.data(), count, max);
          T* result = out + at.q(i);
          std::fill(result, result + at.d, T(0));
          for (int64_t j = 0; j < count; ++j) {
            const T p = exp_of<T>(scores[static_cast<size_t>(j)] - max) / T(sum);
            add_multiple(result, p, v + at.kv(keys.begin + j), at.d);
          }
          logsumexp[i * shape.query_heads + head] = T(Sum<T>(max) + std::log(sum));
        }
      });
}

template <class T>
void plain_backward(const AttentionShape& shape, const T* q, const T* k, const T* v,
                    const uint32_t* row_begin, const T* out, const T* logsumexp, const T* grad_out,
                    T* grad_q, T* grad_k, T* grad_v) {
  const T scale = constant<T>(shape.scale);
  const int64_t group = shape.query_heads / shape.kv_heads;
  std::fill(grad_q, grad_q + shape.queries * shape.query_heads * shape.head_dim, T(0));
  std::fill(grad_k, grad_k + shape.keys * shape.kv_heads * shape.head_dim, T(0));
  std::fill(grad_v, grad_v + shape.keys * shape.kv_heads * shape.head_dim, T(0));
  // Query heads that share a key-value head stay on one thread, in order.
  parallel_for_dynamic(
      shape.kv_heads, group * shape.queries * shape.queries * shape.head_dim, [&](int64_t kv) {
        for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
          const HeadLayout at(shape, head);
          for (int64_t i = 0; i < shape.queries; ++i) {
            const KeyRange keys = keys_of(shape, row_begin, i);
            const T* grad = grad_out + at.q(i);
            const T delta = dot(grad, out + at.q(i), at.d);
            const T lse = logsumexp[i * shape.query_heads + head];
            for (int64_t j = keys.begin; j < keys.end; ++j) {
              const T s = capped(shape, scale * dot(q + at.q(i), k + at.kv(j), at.d));
              const T p = exp_of<T>(s - lse);
              T grad_s = p * (dot(grad, v + at.kv(j), at.d) - delta);
              if (shape.soft_cap > 0) {
                const T t = s / constant<T>(shape.soft_cap);
                grad_s *= (T(1) - t) * (T(1) + t);
              }
              add_multiple(grad_v + at.kv(j), p, grad, at.d);
              add_multiple(grad_q + at.q(i), scale * grad_s, k + at.kv(j), at.d);
              add_multiple(grad_k + at.kv(j), scale * grad_s, q + at.q(i), at.d);
            }
          }
        }
      });
}

}  // namespace

template <class T>
void attention_forward(const AttentionShape& shape, const T* q, const T* k, const T* v,
                       const uint32_t* row_begin, T* out, T* logsumexp) {
  if constexpr (std::is_same_v<T, float>) {
    attention_forward_f32(shape, q, k, v, row_begin, out, logsumexp);
  } else {
    plain_forward(shape, q, k, v, row_begin, out, logsumexp);
  }
}

template <class T>
void attention_backward(const AttentionShape& shape, const T* q, const T* k, const T* v,
                        const uint32_t* row_begin, const T* out, const T* logsumexp,
                        const T* grad_out, T* grad_q, T* grad_k, T* grad_v) {
  if constexpr (std::is_same_v<T, float>) {
    attention_backward_f32(shape, q, k, v, row_begin, out, logsumexp, grad_out, grad_q, grad_k,
                           grad_v);
  } else {
    plain_backward(shape, q, k, v, row_begin, out, logsumexp, grad_out, grad_q, grad_k, grad_v);
  }
}

#define WGRAD_INSTANTIATE(T)                                                               \
  template void attention_forward<T>(const AttentionShape&, const T*, const T*, const T*,  \
                                     const uint32_t*, T*, T*);                             \
  template void attention_backward<T>(const AttentionShape&, const T*, const T*, const T*, \
                                      const uint32_t*, const T*, const T*, const T*, T*, T*, T*);
WGRAD_FOR_EACH_SCALAR(WGRAD_INSTANTIATE)
#undef WGRAD_INSTANTIATE

}  // namespace wgrad::cpu
