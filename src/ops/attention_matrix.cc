#include "ops/attention_matrix.h"

#include <algorithm>

#include "ops/launch.h"

namespace wgrad::ops {
namespace {

constexpr int64_t kLargestHead = 128;

/// Fewer queries than this leave a tile mostly empty.
constexpr int64_t kSmallestMatrixBatch = 32;

constexpr AttentionMatrixKernel kKernels[] = {
    AttentionMatrixKernel::kForward, AttentionMatrixKernel::kGradQ, AttentionMatrixKernel::kGradKv};

int64_t tiles(AttentionMatrixKernel kernel, const AttentionShape& s, uint32_t tokens) {
  return ceil_div(tokens, attention_matrix_shape(kernel, attention_packed_dim(s.head_dim)).rows);
}

}  // namespace

bool has_attention_matrices(const Context& ctx) {
  const gpu::Features& f = ctx.features();
  if (!f.shader_f16 || !f.subgroups || !f.subgroup_matrix_f16 || f.subgroup_min_size != 32 ||
      f.subgroup_max_size != 32) {
    return false;
  }
  return std::all_of(std::begin(kKernels), std::end(kKernels), [&](AttentionMatrixKernel kernel) {
    const auto shape = attention_matrix_shape(kernel, attention_packed_dim(kLargestHead));
    return shape.workgroup_bytes <= ctx.limits().max_workgroup_memory &&
           shape.invocations <= ctx.limits().max_workgroup_invocations;
  });
}

bool attention_uses_matrices(const Context& ctx, const AttentionShape& s, int64_t queries) {
  return ctx.compute() == ComputeType::kF16 && s.head_dim <= kLargestHead &&
         queries >= kSmallestMatrixBatch && has_attention_matrices(ctx);
}

void attention_forward_matrix(Context& ctx, const AttentionShape& s, const AttentionParams& params,
                              const AttentionOperands& operands, const Tensor& row_begin,
                              const Tensor& out, const Tensor& logsumexp) {
  constexpr auto kKernel = AttentionMatrixKernel::kForward;
  AttentionParams p = params;
  p.groups = static_cast<uint32_t>(tiles(kKernel, s, p.queries)) * p.heads;
  launch(ctx, attention_matrix_kernel(kKernel, s.head_dim),
         {in(operands.q), in(operands.kv), in(row_begin), in(operands.factors), ops::out(out),
          ops::out(logsumexp)},
         p, groups(p.groups));
}

void attention_backward_matrix(Context& ctx, const AttentionShape& s, const AttentionParams& params,
                               const AttentionOperands& operands, const Tensor& grad_out,
                               const Tensor& row_begin, const Tensor& row_end,
                               const Tensor& statistics, const Tensor& grad_q, const Tensor& grad_k,
                               const Tensor& grad_v) {
  const Tensor packed = attention_pack_grad(ctx, s.head_dim, grad_out, operands.factors);
  AttentionParams p = params;
  p.groups = static_cast<uint32_t>(tiles(AttentionMatrixKernel::kGradKv, s, p.keys)) * p.kv_heads;
  launch(ctx, attention_matrix_kernel(AttentionMatrixKernel::kGradKv, s.head_dim),
         {in(operands.q), in(operands.kv), in(packed), in(row_end), in(statistics),
          in(operands.factors), out(grad_k), out(grad_v)},
         p, groups(p.groups));
  p.groups = static_cast<uint32_t>(tiles(AttentionMatrixKernel::kGradQ, s, p.queries)) * p.heads;
  launch(ctx, attention_matrix_kernel(AttentionMatrixKernel::kGradQ, s.head_dim),
         {in(operands.q), in(operands.kv), in(packed), in(row_begin), in(statistics),
          in(operands.factors), out(grad_q)},
         p, groups(p.groups));
}

}  // namespace wgrad::ops
