#include "ops/attention_matrix.h"

#include <algorithm>

#include "ops/launch.h"

namespace wgrad::ops {
namespace {

constexpr int64_t kLargestHead = 128;

/// Fewer queries than this leave a tile mostly empty.
constexpr int64_t kSmallestMatrixBatch = 32;

/// Workgroups that share the search for the largest norm.
constexpr int64_t kNormParts = 1024;
constexpr int64_t kNormCells = 16;

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

AttentionOperands::AttentionOperands(Context& ctx, const AttentionShape& s, int64_t queries,
                                     int64_t keys, bool grads)
    : head_dim_(s.head_dim) {
  const int64_t packed = attention_packed_dim(s.head_dim);
  const auto allocate = [&](Shape shape, DType dtype) {
    return ctx.allocate(std::move(shape), dtype, "scratch/attention_operands");
  };
  q = allocate({(grads ? 2 : 1) * queries * s.heads, packed}, DType::kF16);
  kv = allocate({2 * keys * s.kv_heads, packed}, DType::kF16);
  factors = allocate({4, 2}, DType::kF32);
  parts_ = allocate({kNormParts}, DType::kF32);
}

void AttentionOperands::pack(Context& ctx, const Tensor& from, int64_t slot, const Tensor& to,
                             int64_t first_cell) const {
  const int64_t cells = from.size() / head_dim_;
  const int64_t parts = std::min(kNormParts, ceil_div(cells, kNormCells));
  AttentionParams params{};
  params.groups = static_cast<uint32_t>(cells);
  params.first_token = static_cast<uint32_t>(slot);
  params.origin = static_cast<uint32_t>(first_cell);
  params.splits = static_cast<uint32_t>(parts);
  params.one = 1;
  launch(ctx, attention_pack_kernel(AttentionPackKernel::kNorms, head_dim_),
         {in(from), out(parts_)}, params, {static_cast<uint32_t>(parts), 1, 1});
  launch(ctx, attention_pack_kernel(AttentionPackKernel::kFactor, head_dim_),
         {in(parts_), out(factors)}, params, {1, 1, 1});
  launch(ctx, attention_pack_kernel(AttentionPackKernel::kPack, head_dim_),
         {in(from), in(factors), out(to)}, params,
         invocations(cells * (attention_packed_dim(head_dim_) / 8)));
}

void AttentionOperands::pack(Context& ctx, const Tensor& q_from, const Tensor& k_from,
                             const Tensor& v_from, const Tensor& grad_out) const {
  pack(ctx, q_from, 0, q, 0);
  pack(ctx, k_from, 1, kv, 0);
  pack(ctx, v_from, 2, kv, k_from.size() / head_dim_);
  if (grad_out) pack(ctx, grad_out, 3, q, q_from.size() / head_dim_);
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
                               const AttentionOperands& operands, const Tensor& row_begin,
                               const Tensor& row_end, const Tensor& statistics,
                               const Tensor& grad_q, const Tensor& grad_k, const Tensor& grad_v) {
  AttentionParams p = params;
  p.groups = static_cast<uint32_t>(tiles(AttentionMatrixKernel::kGradKv, s, p.keys)) * p.kv_heads;
  launch(ctx, attention_matrix_kernel(AttentionMatrixKernel::kGradKv, s.head_dim),
         {in(operands.q), in(operands.kv), in(row_end), in(statistics), in(operands.factors),
          out(grad_k), out(grad_v)},
         p, groups(p.groups));
  p.groups = static_cast<uint32_t>(tiles(AttentionMatrixKernel::kGradQ, s, p.queries)) * p.heads;
  launch(ctx, attention_matrix_kernel(AttentionMatrixKernel::kGradQ, s.head_dim),
         {in(operands.q), in(operands.kv), in(row_begin), in(statistics), in(operands.factors),
          out(grad_q)},
         p, groups(p.groups));
}

}  // namespace wgrad::ops
