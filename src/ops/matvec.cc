#include "ops/matvec.h"

#include <vector>

#include "ops/launch.h"
#include "ops/matmul_f32.h"
#include "ops/window.h"

namespace wgrad::ops {

bool fits_matvec(const MatvecCall& call) {
  return call.m <= kMatvecRows && call.k % 8 == 0 && call.k > 0 && call.ldx % 4 == 0 &&
         (window(call.x).offset + call.x_column) % 4 == 0;
}

namespace {

MatvecMember member_of(const MatvecCall& call) {
  const Window x = window(call.x), y = window(call.y), bias = window(call.bias);
  MatvecMember member{};
  member.n = static_cast<uint32_t>(call.n);
  member.w_offset = static_cast<uint32_t>(call.w_offset);
  member.w_stride = static_cast<uint32_t>(call.w_stride);
  member.x_offset = (x.offset + static_cast<uint32_t>(call.x_column)) / 4;
  member.y_offset = y.offset + static_cast<uint32_t>(call.y_column);
  member.bias_offset = bias.offset;
  member.alpha = call.alpha;
  return member;
}

MatvecParams params_of(const MatvecCall& call) {
  MatvecParams p{};
  p.units = static_cast<uint32_t>(call.k / 8);
  p.ldx = static_cast<uint32_t>(call.ldx / 4);
  p.ldy = static_cast<uint32_t>(call.ldy);
  p.accumulate = call.accumulate ? 1 : 0;
  p.origin = static_cast<uint32_t>(call.origin);
  p.absmax_offset = call.absmax_offset;
  return p;
}

/// Sets what changes the speed alone. `rows` of weights are to be read, a subgroup's worth of each
/// row at once.
void tune(const Context& ctx, int64_t rows, const MatvecCall& call, MatvecKernel& kernel) {
  // Devices with narrow vectors gain nothing from loads ahead, and compile the text for seconds.
  const bool wide = ctx.features().subgroups && ctx.features().subgroup_min_size >= 16;
  if (!wide) return;
  const bool blocks = kernel.weight == MatvecWeight::kF16Blocks;
  kernel.loads_ahead = blocks || kernel.rows > 2 ? 4 : 8;
  if (kernel.rows > 1) return;
  if (blocks) kernel.thread_rows = 2;
  if (kernel.gated) kernel.loads_ahead = 2;
  // Few rows: more invocations for each, so that enough loads are on their way.
  constexpr int64_t kManyRows = 8192;
  constexpr int kMost = 1024;
  if (rows < kManyRows && call.k >= 1024 && ctx.limits().max_workgroup_invocations >= kMost) {
    kernel.invocations = kMost;
  }
}

}  // namespace

void run_matvec(Context& ctx, const MatvecCall& call) {
  MatvecKernel kernel{.weight = call.weight,
                      .rows = static_cast<int>(call.m),
                      .bias = static_cast<bool>(call.bias)};
  tune(ctx, call.n, call, kernel);
  MatvecParams p = params_of(call);
  p.members[0] = member_of(call);
  p.groups = static_cast<uint32_t>(ceil_div(call.n, kernel.group_rows()));
  const Window x = window(call.x), y = window(call.y), bias = window(call.bias);
  std::vector<Argument> arguments = {in(x.tensor)};
  if (call.bias) arguments.push_back(in(bias.tensor));
  arguments.push_back(out(y.tensor));
  arguments.push_back(in(call.w));
  if (call.weight == MatvecWeight::kNF4) {
    arguments.push_back(in(call.absmax_codes));
    arguments.push_back(in(call.absmax_scales));
  }
  launch(ctx, matvec_kernel_spec(kernel), std::span<const Argument>(arguments), p,
         groups(int64_t{p.groups}));
}

bool run_matvecs(Context& ctx, std::span<const MatvecCall> calls, const MatvecNorm& norm,
                 std::optional<Activation> gated) {
  const MatvecCall& first = calls.front();
  MatvecKernel kernel{.weight = first.weight,
                      .members = static_cast<int>(calls.size()),
                      .bias = static_cast<bool>(first.bias),
                      .norm = static_cast<bool>(norm.weight),
                      .gated = gated.has_value(),
                      .activation = gated.value_or(Activation::kSilu)};
  int64_t rows = 0;
  for (const MatvecCall& call : calls) rows += call.n;
  tune(ctx, rows, first, kernel);
  const size_t bindings = 2 + (kernel.norm ? 1 : 0) + calls.size() * (kernel.bias ? 2 : 1);
  if (bindings > ctx.limits().max_storage_buffers) return false;
  MatvecParams p = params_of(first);
  p.eps = norm.eps;
  p.norm_add = norm.add;
  p.inverse_columns = 1.0f / static_cast<float>(first.k);
  // One binding each for all x and all y, from the beginning of their memory.
  Tensor x = from_storage_start(first.x), y = from_storage_start(first.y);
  for (size_t i = 0; i < calls.size(); ++i) {
    const MatvecCall& call = calls[i];
    const Tensor this_x = from_storage_start(call.x), this_y = from_storage_start(call.y);
    if (this_x.size() > x.size()) x = this_x;
    if (this_y.size() > y.size()) y = this_y;
    p.members[i] = member_of(call);
    p.members[i].x_offset =
        static_cast<uint32_t>((this_x.size() - call.x.size() + call.x_column) / 4);
    p.members[i].y_offset = static_cast<uint32_t>(this_y.size() - call.y.size() + call.y_column);
    if (i > 0 && gated) break;
    p.members[i].first_group = p.groups;
    p.groups += static_cast<uint32_t>(ceil_div(call.n, kernel.group_rows()));
  }
  const Window weight = window(norm.weight);
  p.norm_offset = weight.offset / 4;
  std::vector<Argument> arguments = {in(x)};
  if (kernel.norm) arguments.push_back(in(weight.tensor));
  std::array<Window, kMatvecMembers> biases;
  for (size_t i = 0; kernel.bias && i < calls.size(); ++i) {
    biases.at(i) = window(calls[i].bias);
    arguments.push_back(in(biases[i].tensor));
  }
  arguments.push_back(out(y));
  for (const MatvecCall& call : calls) arguments.push_back(in(call.w));
  launch(ctx, matvec_kernel_spec(kernel), std::span<const Argument>(arguments), p,
         groups(int64_t{p.groups}));
  return true;
}

bool matvec(Context& ctx, const Product& p) {
  if (p.op != MatmulOp::kNT) return false;
  const Window b = window(p.b);
  MatvecCall call;
  call.weight = p.b.dtype() == DType::kF16 ? MatvecWeight::kF16 : MatvecWeight::kF32;
  call.m = p.m, call.n = p.n, call.k = p.k;
  call.x = p.a, call.y = p.c, call.bias = p.bias;
  call.ldx = p.lda, call.ldy = p.ldc;
  call.x_column = p.a_column, call.y_column = p.c_column;
  call.alpha = p.alpha;
  call.accumulate = p.accumulate;
  if (!fits_matvec(call) || p.ldb % 8 != 0 || b.offset % 8 != 0) return false;
  call.w = b.tensor;
  call.w_offset = b.offset / 8;
  call.w_stride = p.ldb / 8;
  run_matvec(ctx, call);
  return true;
}

}  // namespace wgrad::ops
