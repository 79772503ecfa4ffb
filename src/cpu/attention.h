#pragma once

#include <cstdint>

namespace wgrad::cpu {

/// Query i stands at key index i + query_offset and sees the keys j with
/// max(row_begin[i], i + query_offset - window + 1) <= j <= i + query_offset (window 0: no window).
/// Query head h reads key-value head h / (query_heads / kv_heads).
struct AttentionShape {
  int64_t queries = 0;      ///< tokens of q
  int64_t keys = 0;         ///< tokens of k and v; at least queries + query_offset
  int64_t query_heads = 0;  ///< a multiple of kv_heads
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t query_offset = 0;  ///< keys before the first query (generation with a cache)
  int64_t window = 0;        ///< how many keys a query sees at most; 0: all
  double scale = 1.0;        ///< on the scores, usually 1 / sqrt(head_dim)
  double soft_cap = 0.0;     ///< scores become soft_cap tanh(score / soft_cap); 0: they stay
};

/// s = scale q k^T, capped, over the keys that a query sees; out = softmax(s) v; logsumexp(s) is
/// saved. Scores are never all in memory: float works a tile of keys at a time.
template <class T>
void attention_forward(const AttentionShape& shape,
                       const T* q,                 // [queries, query_heads * head_dim]
                       const T* k,                 // [keys, kv_heads * head_dim]
                       const T* v,                 // [keys, kv_heads * head_dim]
                       const uint32_t* row_begin,  // [queries], key index; not decreasing
                       T* out,                     // [queries, query_heads * head_dim], set
                       T* logsumexp);              // [queries, query_heads], set

/// With p = exp(s - logsumexp) and delta = sum(grad_out out):
/// grad_v = p^T grad_out; grad_s = p (grad_out v^T - delta), times 1 - (s / soft_cap)^2 where there
/// is a cap; grad_q = scale grad_s k; grad_k = scale grad_s^T q. Keys that no query sees get zero.
template <class T>
void attention_backward(const AttentionShape& shape,
                        const T* q,                 // [queries, query_heads * head_dim]
                        const T* k,                 // [keys, kv_heads * head_dim]
                        const T* v,                 // [keys, kv_heads * head_dim]
                        const uint32_t* row_begin,  // [queries]
                        const T* out,               // from forward
                        const T* logsumexp,         // from forward
                        const T* grad_out,          // [queries, query_heads * head_dim]
                        T* grad_q,                  // as q, set
                        T* grad_k,                  // as k, set
                        T* grad_v);                 // as v, set

}  // namespace wgrad::cpu
