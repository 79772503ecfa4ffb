#pragma once

#include <vector>

#include "ops/attention_pack.h"
#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// Causal grouped-query attention over rows that lie end to end (no padding). In f32; in a context
/// that computes in f16, with f16 operands of the products where the device has subgroup matrices.
/// Deterministic. No row's result depends on another row's values. In f32 a row has the same bits
/// in any batch in which it begins at the same position modulo 64; elsewhere its sums are cut into
/// tiles at other keys, and it agrees within rounding. Query i sits at key index p = i +
/// query_offset and sees the keys j with max(row_begin[i], p - window + 1) <= j <= p (window 0: no
/// window). Query head h reads key head h / (heads / kv_heads).
struct AttentionShape {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t query_offset = 0;
  /// Keys that there are, where k and v have room for more: kernels then bind the same memory
  /// whatever the length. 0: all rows of k. Forward only, with one segment.
  int64_t keys = 0;
  int64_t window = 0;
  float scale = 0.0f;       ///< usually 1 / sqrt(head_dim)
  float soft_cap = 0.0f;    ///< scores become soft_cap tanh(score / soft_cap); 0: they stay
  int64_t longest_row = 0;  ///< tokens that no row exceeds, so that less is reserved; 0: not known
  /// Bytes that backward may take, where it runs on subgroup matrices, to keep gradients of scores:
  /// some KV heads at a time. With less than one takes they are computed twice.
  int64_t kept_scores_limit = int64_t{1152} << 20;
};

/// What attention_backward reads of q, k and v: the tensors themselves or, where attention ran on
/// subgroup matrices, their f16 operands, which are half as large.
struct AttentionSaved {
  Tensor q, k, v;
  std::vector<AttentionOperands> packed;  ///< one for each part of the rows that ran by itself
};

/// q [Tq, heads * head_dim], k and v [Tk, kv_heads * head_dim], row_begin u32 [Tq] (key index at
/// which the query's row begins, never decreasing); out as q; logsumexp f32 [Tq, heads].
/// No score matrix in memory (Dao 2023).
AttentionSaved attention_forward(Context& ctx, const AttentionShape& shape, const Tensor& q,
                                 const Tensor& k, const Tensor& v, const Tensor& row_begin,
                                 const Tensor& out, const Tensor& logsumexp);
/// Sets grad_q, grad_k, grad_v, shaped as q, k, v were. Training only: Tq == Tk, query_offset == 0.
/// `row_end` u32 [T]: one past the last token of the key's row.
void attention_backward(Context& ctx, const AttentionShape& shape, const AttentionSaved& saved,
                        const Tensor& row_begin, const Tensor& row_end, const Tensor& out,
                        const Tensor& logsumexp, const Tensor& grad_out, const Tensor& grad_q,
                        const Tensor& grad_k, const Tensor& grad_v);

}  // namespace wgrad::ops
