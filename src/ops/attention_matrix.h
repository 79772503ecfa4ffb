#pragma once

#include "ops/attention.h"
#include "ops/attention_source.h"

namespace wgrad::ops {

/// Whether the device has what the kernels of attention_matrix_source.h need.
bool has_attention_matrices(const Context& ctx);

/// Whether attention over these tokens runs on f16 subgroup matrices: where the context computes in
/// f16, the device has them, and heads and batch are of a size that they serve.
bool attention_uses_matrices(const Context& ctx, const AttentionShape& shape, int64_t queries);

/// The operands in f16 and their powers of two, made anew for each segment of rows.
class AttentionOperands {
 public:
  /// Memory for segments of up to `queries` and `keys` tokens; `grads`: grad_out too.
  AttentionOperands(Context& ctx, const AttentionShape& shape, int64_t queries, int64_t keys,
                    bool grads);

  /// Packs q, k, v and, for gradients, grad_out (else empty) of one segment.
  void pack(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
            const Tensor& grad_out) const;

  Tensor q;        ///< f16: q and after it grad_out, each [queries, heads, packed head_dim]
  Tensor kv;       ///< f16: k and after it v
  Tensor factors;  ///< f32 [4, 2]: the power of q, k, v, grad_out and its inverse

 private:
  void pack(Context& ctx, const Tensor& from, int64_t slot, const Tensor& to,
            int64_t first_cell) const;

  int64_t head_dim_;
  Tensor parts_;
};

/// As the kernels of the same names in attention.cc, on the operands of one segment.
void attention_forward_matrix(Context& ctx, const AttentionShape& shape,
                              const AttentionParams& params, const AttentionOperands& operands,
                              const Tensor& row_begin, const Tensor& out, const Tensor& logsumexp);
void attention_backward_matrix(Context& ctx, const AttentionShape& shape,
                               const AttentionParams& params, const AttentionOperands& operands,
                               const Tensor& row_begin, const Tensor& row_end,
                               const Tensor& statistics, const Tensor& grad_q, const Tensor& grad_k,
                               const Tensor& grad_v);

}  // namespace wgrad::ops
