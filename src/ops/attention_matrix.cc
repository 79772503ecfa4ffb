#include "ops/attention_matrix.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "ops/launch.h"

namespace wgrad::ops {
namespace {

/// All kernels multiply heads of up to so many elements, those of kWideKernels wider ones.
constexpr int64_t kLargestNarrowHead = 128;
constexpr int64_t kLargestHead = 256;

/// Fewer queries than this leave a tile mostly empty.
constexpr int64_t kSmallestMatrixBatch = 32;

constexpr AttentionMatrixKernel kKernels[] = {
    AttentionMatrixKernel::kForward, AttentionMatrixKernel::kGradQ, AttentionMatrixKernel::kGradKv,
    AttentionMatrixKernel::kGradKvKeep, AttentionMatrixKernel::kGradQKept};

/// Without kGradQ and kGradKv, whose operands would not fit in registers.
constexpr AttentionMatrixKernel kWideKernels[] = {AttentionMatrixKernel::kForward,
                                                  AttentionMatrixKernel::kGradKvKeep,
                                                  AttentionMatrixKernel::kGradQKept};

/// Storage buffers of kGradKvKeep.
constexpr uint32_t kKeepBuffers = 9;

int64_t tiles(AttentionMatrixKernel kernel, const AttentionShape& s, int64_t tokens) {
  const AttentionMatrixShape shape =
      attention_matrix_shape(kernel, attention_packed_dim(s.head_dim));
  return ceil_div(tokens, shape.rows) * shape.workgroups;
}

/// Workgroups of one dispatch that keep a large device busy to its end: with half of them, the last
/// ones of each part of the KV heads leave several percent of it idle.
constexpr int64_t kBusyWorkgroups = 512;

/// How backward keeps the gradients of the scores: as many KV heads at a time as the device needs,
/// or as the memory holds.
struct KeptScores {
  int64_t kv_heads = 0;  ///< 0: none fits, they are computed again
  int64_t per_keys = 0;  ///< tiles of queries that a tile of keys meets at most
  int64_t bytes = 0;     ///< of all that is kept at a time
};

KeptScores kept_scores(const Context& ctx, const AttentionShape& s, int64_t tokens) {
  KeptScores kept;
  if (ctx.limits().max_storage_buffers < kKeepBuffers) return kept;
  // The last of 64 keys is seen by at most so many queries of its row.
  int64_t reach = s.longest_row > 0 ? std::min(s.longest_row, tokens) : tokens;
  if (s.window > 0) reach = std::min(reach, s.window);
  kept.per_keys = ceil_div(63 + reach, 32);
  const int64_t each =
      attention_kept_tiles(tokens, kept.per_keys) * kKeptTileBytes * (s.heads / s.kv_heads);
  const uint64_t limit = std::min({static_cast<uint64_t>(s.kept_scores_limit),
                                   ctx.limits().max_binding_size, ctx.limits().max_buffer_size});
  if (static_cast<uint64_t>(each) > limit) return kept;
  const int64_t wanted =
      ceil_div(kBusyWorkgroups, tiles(AttentionMatrixKernel::kGradKvKeep, s, tokens));
  const int64_t fits = std::min({static_cast<int64_t>(limit) / each, wanted, s.kv_heads});
  kept.kv_heads = ceil_div(s.kv_heads, ceil_div(s.kv_heads, fits));  // parts of one size
  kept.bytes = kept.kv_heads * each;
  return kept;
}

bool fit(const Context& ctx, std::span<const AttentionMatrixKernel> kernels, int64_t head_dim) {
  return std::all_of(kernels.begin(), kernels.end(), [&](AttentionMatrixKernel kernel) {
    const auto shape = attention_matrix_shape(kernel, attention_packed_dim(head_dim));
    return shape.workgroup_bytes <= ctx.limits().max_workgroup_memory &&
           shape.invocations <= ctx.limits().max_workgroup_invocations;
  });
}

}  // namespace

bool has_attention_matrices(const Context& ctx) {
  const gpu::Features& f = ctx.features();
  if (!f.shader_f16 || !f.subgroups || !f.subgroup_matrix_f16 || f.subgroup_min_size != 32 ||
      f.subgroup_max_size != 32) {
    return false;
  }
  return fit(ctx, kKernels, kLargestNarrowHead);
}

bool attention_uses_matrices(const Context& ctx, const AttentionShape& s, int64_t queries) {
  if (ctx.compute() != ComputeType::kF16 || s.head_dim > kLargestHead || s.scale < 0.0f ||
      queries < kSmallestMatrixBatch || !has_attention_matrices(ctx)) {
    return false;
  }
  if (s.head_dim <= kLargestNarrowHead) return true;
  return fit(ctx, kWideKernels, kLargestHead) && kept_scores(ctx, s, queries).kv_heads > 0;
}

void attention_forward_matrix(Context& ctx, const AttentionShape& s, const AttentionParams& params,
                              const AttentionOperands& operands, const Tensor& row_begin,
                              const Tensor& out, const Tensor& logsumexp) {
  constexpr auto kKernel = AttentionMatrixKernel::kForward;
  AttentionParams p = params;
  p.groups = static_cast<uint32_t>(tiles(kKernel, s, p.queries)) * p.heads;
  launch(ctx, attention_matrix_kernel(kKernel, s.head_dim, s.soft_cap),
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
  const KeptScores kept_plan = kept_scores(ctx, s, params.queries);
  const int64_t at_once = kept_plan.kv_heads > 0 ? kept_plan.kv_heads : s.kv_heads;
  Tensor kept;
  if (kept_plan.kv_heads > 0) {
    kept = ctx.allocate({kept_plan.bytes / 2}, DType::kF16, "scratch/attention_scores");
  }
  AttentionParams p = params;
  p.kept_tiles = static_cast<uint32_t>(kept_plan.per_keys);
  const auto run = [&](AttentionMatrixKernel kernel, int64_t heads,
                       std::vector<Argument> arguments) {
    p.groups = static_cast<uint32_t>(tiles(kernel, s, p.queries) * heads);
    launch(ctx, attention_matrix_kernel(kernel, s.head_dim, s.soft_cap), arguments,
           std::as_bytes(std::span<const AttentionParams>(&p, 1)), groups(p.groups));
  };
  for (int64_t first = 0; first < s.kv_heads; first += at_once) {
    const int64_t kv_heads = std::min(at_once, s.kv_heads - first);
    p.first_kv_head = static_cast<uint32_t>(first);
    p.kv_head_count = static_cast<uint32_t>(kv_heads);
    std::vector<Argument> grad_kv = {in(operands.q), in(operands.kv), in(packed),
                                     in(row_end),    in(statistics),  in(operands.factors),
                                     out(grad_k),    out(grad_v)};
    if (!kept) {
      run(AttentionMatrixKernel::kGradKv, kv_heads, grad_kv);
      run(AttentionMatrixKernel::kGradQ, s.heads,
          {in(operands.q), in(operands.kv), in(packed), in(row_begin), in(statistics),
           in(operands.factors), out(grad_q)});
      continue;
    }
    grad_kv.push_back(out(kept));
    run(AttentionMatrixKernel::kGradKvKeep, kv_heads, grad_kv);
    run(AttentionMatrixKernel::kGradQKept, kv_heads * (s.heads / s.kv_heads),
        {in(kept), in(operands.kv), in(row_begin), in(operands.factors), out(grad_q)});
  }
}

}  // namespace wgrad::ops
