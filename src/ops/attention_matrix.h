#pragma once

#include "ops/attention.h"
#include "ops/attention_pack.h"
#include "ops/attention_source.h"

namespace wgrad::ops {

/// Whether the device has what the kernels of attention_matrix_source.h need.
bool has_attention_matrices(const Context& ctx);

/// Whether attention over these tokens runs on f16 subgroup matrices: where the context computes in
/// f16, the device has them, and heads and batch are of a size that they serve.
bool attention_uses_matrices(const Context& ctx, const AttentionShape& shape, int64_t queries);

/// As the kernels of the same names in attention.cc, on the operands of one segment.
void attention_forward_matrix(Context& ctx, const AttentionShape& shape,
                              const AttentionParams& params, const AttentionOperands& operands,
                              const Tensor& row_begin, const Tensor& out, const Tensor& logsumexp);
void attention_backward_matrix(Context& ctx, const AttentionShape& shape,
                               const AttentionParams& params, const AttentionOperands& operands,
                               const Tensor& grad_out, const Tensor& row_begin,
                               const Tensor& row_end, const Tensor& statistics,
                               const Tensor& grad_q, const Tensor& grad_k, const Tensor& grad_v);

}  // namespace wgrad::ops
