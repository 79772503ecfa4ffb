#include "ops/lora_matrix.h"

#include <algorithm>

#include "ops/f16_blocks.h"
#include "ops/launch.h"
#include "ops/lora_matrix_source.h"
#include "ops/window.h"

namespace wgrad::ops {

namespace {

constexpr int64_t kLargestRank = 64;
/// Workgroups that keep a large device busy.
constexpr int64_t kWorkgroups = 256;

LowRankTerm project(Context& ctx, LinearInput& wide, const LoraHalves& halves, bool forward,
                    float alpha, float next_alpha, const Tensor& small) {
  const int64_t tokens = wide.tokens();
  expect_tensor("lora_project", "small", small, DType::kF32, {tokens, halves.rank});
  LowRankTerm term;
  term.padded_rank = lora_padded_rank(halves.rank);
  term.rows = f16_padded(tokens);
  term.columns = f16_padded(forward ? halves.out_features : halves.in_features);
  term.factor = forward ? halves.b : halves.a;
  term.small = ctx.allocate({term.rows, term.padded_rank}, DType::kF16, "scratch/lora");
  term.scales = ctx.allocate({tokens}, DType::kF32, "scratch/lora");
  const F16Operand& operand = wide.packed(ctx, 0, tokens);
  LoraMatrixParams p{};
  p.m = static_cast<uint32_t>(tokens);
  p.rank = static_cast<uint32_t>(halves.rank);
  p.column_blocks = static_cast<uint32_t>(f16_padded(operand.columns) / 16);
  p.factor_power = forward ? 0 : 1;
  p.alpha = alpha;
  p.next_alpha = next_alpha;
  launch(ctx,
         lora_matrix_kernel({.step = LoraMatrixStep::kProject,
                             .padded_rank = term.padded_rank,
                             .factor_rows_are_wide = !forward}),
         {in(operand.blocks), in(operand.scales), in(forward ? halves.a : halves.b),
          in(halves.powers), out(small), out(term.small), out(term.scales)},
         p, groups(term.rows / kLoraPanel));
  return term;
}

/// The parts of one gradient: their sums and the powers of two that these are to be multiplied by.
/// Each gradient has memory of its own, so that neither waits for the other.
struct Parts {
  Parts(Context& ctx, int64_t tokens, int64_t columns, int64_t rank) : width(f16_padded(columns)) {
    const int64_t column_groups = ceil_div(width, kLoraMatrixColumns);
    const int64_t wanted = ceil_div(kWorkgroups, column_groups);
    rows = std::min(lora_most_part_rows(lora_padded_rank(rank)),
                    ceil_div(ceil_div(tokens, wanted), kLoraPanel) * kLoraPanel);
    count = ceil_div(tokens, rows);
    size = lora_padded_rank(rank) * width;
    workgroups = count * column_groups;
    sums = ctx.allocate({count * size}, DType::kF32, "scratch/lora_parts");
    powers = ctx.allocate({count}, DType::kF32, "scratch/lora_parts");
  }

  void run(Context& ctx, LinearInput& wide, const Tensor& small, bool rows_are_wide) const {
    const int64_t tokens = small.dim(0);
    const F16Operand& operand = wide.packed(ctx, 0, tokens);
    LoraMatrixParams p{};
    p.m = static_cast<uint32_t>(tokens);
    p.rank = static_cast<uint32_t>(small.dim(1));
    p.column_blocks = static_cast<uint32_t>(width / 16);
    p.rows_per_part = static_cast<uint32_t>(rows);
    p.parts = static_cast<uint32_t>(count);
    launch(ctx,
           lora_matrix_kernel({.step = LoraMatrixStep::kGradient,
                               .padded_rank = lora_padded_rank(small.dim(1)),
                               .factor_rows_are_wide = rows_are_wide}),
           {in(operand.blocks), in(operand.scales), in(small), out(sums), out(powers)}, p,
           groups(workgroups));
  }

  int64_t width, rows = 0, count = 0, size = 0, workgroups = 0;
  Tensor sums, powers;
};

}  // namespace

bool lora_uses_matrices(const Context& ctx, int64_t rank) {
  return ctx.compute() == ComputeType::kF16 && has_f16_product(ctx) && rank % 4 == 0 &&
         rank <= kLargestRank && ctx.limits().max_workgroup_memory >= (32 << 10);
}

bool lora_fits(const Context& ctx, const LoraHalves& halves, const Weight& weight, int64_t tokens) {
  return static_cast<bool>(halves) && weight.in_features % 4 == 0 &&
         linear_takes_packed(ctx, weight, tokens);
}

LowRankTerm lora_project_forward(Context& ctx, LinearInput& x, const LoraHalves& halves,
                                 float scale, const Tensor& xa) {
  return project(ctx, x, halves, true, 1.0f, scale, xa);
}

LowRankTerm lora_project_backward(Context& ctx, LinearInput& grad_y, const LoraHalves& halves,
                                  float scale, const Tensor& grad_xa) {
  return project(ctx, grad_y, halves, false, scale, 1.0f, grad_xa);
}

void lora_add_gradients(Context& ctx, LinearInput& grad_y, const Tensor& xa, float scale,
                        LinearInput& x, const Tensor& grad_xa, const Tensor& grad_b,
                        const Tensor& grad_a) {
  const int64_t tokens = xa.dim(0), rank = xa.dim(1);
  const int64_t out_features = grad_y.columns(), in_features = x.columns();
  expect_tensor("lora_add_gradients", "grad_b", grad_b, DType::kF32, {out_features, rank});
  expect_tensor("lora_add_gradients", "grad_a", grad_a, DType::kF32, {rank, in_features});
  const Parts of_b(ctx, tokens, out_features, rank), of_a(ctx, tokens, in_features, rank);
  of_b.run(ctx, grad_y, xa, true);
  of_a.run(ctx, x, grad_xa, false);
  struct Params {
    uint32_t rank_quads, padded_rank_quads, out, in_quads, padded_in_quads;
    uint32_t size_b, size_a, parts_b, parts_a;
    float alpha;
    uint32_t unused[2];
  } p{};
  p.rank_quads = static_cast<uint32_t>(rank / 4);
  p.padded_rank_quads = static_cast<uint32_t>(lora_padded_rank(rank) / 4);
  p.out = static_cast<uint32_t>(out_features);
  p.in_quads = static_cast<uint32_t>(in_features / 4);
  p.padded_in_quads = static_cast<uint32_t>(of_a.width / 4);
  p.size_b = static_cast<uint32_t>(of_b.size / 4);
  p.size_a = static_cast<uint32_t>(of_a.size / 4);
  p.parts_b = static_cast<uint32_t>(of_b.count);
  p.parts_a = static_cast<uint32_t>(of_a.count);
  p.alpha = scale;
  static const gpu::KernelSpec kSum{"lora_sum_parts", "main", {}, {}, {}, true};
  launch(ctx, kSum,
         {in(of_b.sums), in(of_b.powers), in(of_a.sums), in(of_a.powers), out(grad_b), out(grad_a)},
         p, invocations((grad_b.size() + grad_a.size()) / 4));
}

}  // namespace wgrad::ops
