#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "ops/attention.h"
#include "ops/attention_matrix.h"
#include "ops/bench.h"
#include "ops/verify.h"

namespace wgrad::ops {

namespace {

struct AttentionBench {
  int64_t heads, kv_heads, head_dim, rows, length;
  ComputeType compute;
};

struct Tensors {
  AttentionShape shape;
  Tensor q, k, v, row_begin, row_end, out, logsumexp, grad_out, grad_q, grad_k, grad_v;
};

Tensors make_tensors(Context& ctx, const AttentionBench& b) {
  Tensors t;
  t.shape.heads = b.heads;
  t.shape.kv_heads = b.kv_heads;
  t.shape.head_dim = b.head_dim;
  t.shape.longest_row = b.length;
  t.shape.scale = 1.0f / std::sqrt(static_cast<float>(b.head_dim));
  const int64_t tokens = b.rows * b.length;
  const Shape q{tokens, b.heads * b.head_dim}, k{tokens, b.kv_heads * b.head_dim};
  const auto random = [&](const Shape& shape, uint64_t seed) {
    const auto values = verify_uniform(static_cast<size_t>(shape[0] * shape[1]), seed);
    return ctx.make<float>(shape, DType::kF32, values, "bench");
  };
  const auto empty = [&](const Shape& shape) { return ctx.allocate(shape, DType::kF32, "bench"); };
  t.q = random(q, 1), t.k = random(k, 2), t.v = random(k, 3), t.grad_out = random(q, 4);
  t.out = empty(q), t.logsumexp = empty({tokens, b.heads});
  t.grad_q = empty(q), t.grad_k = empty(k), t.grad_v = empty(k);
  std::vector<uint32_t> begin, end;
  for (int64_t i = 0; i < tokens; ++i) {
    begin.push_back(static_cast<uint32_t>(i / b.length * b.length));
    end.push_back(begin.back() + static_cast<uint32_t>(b.length));
  }
  t.row_begin = ctx.make<uint32_t>({tokens}, DType::kU32, begin, "bench");
  t.row_end = ctx.make<uint32_t>({tokens}, DType::kU32, end, "bench");
  return t;
}

AttentionSaved forward(Context& ctx, const Tensors& t) {
  return attention_forward(ctx, t.shape, t.q, t.k, t.v, t.row_begin, t.out, t.logsumexp);
}

void backward(Context& ctx, const Tensors& t, const AttentionSaved& saved) {
  attention_backward(ctx, t.shape, saved, t.row_begin, t.row_end, t.out, t.logsumexp, t.grad_out,
                     t.grad_q, t.grad_k, t.grad_v);
}

BenchCase bench_case(const AttentionBench& b, bool grads) {
  BenchCase c;
  c.name = fmt::format("attention_{} {} {} x {}, {}/{} heads of {}", grads ? "backward" : "forward",
                       b.compute == ComputeType::kF16 ? "f16" : "f32", b.rows, b.length, b.heads,
                       b.kv_heads, b.head_dim);
  // Half of the square is masked; two products forward, five backward.
  c.flops = (grads ? 5.0 : 2.0) * static_cast<double>(b.length * b.length) *
            static_cast<double>(b.head_dim * b.heads * b.rows);
  c.prepare = [b, grads](Context& ctx) {
    const Tensors t = make_tensors(ctx, b);
    const ComputeType before = ctx.compute();
    ctx.set_compute(b.compute);
    const AttentionSaved saved = forward(ctx, t);
    ctx.set_compute(before);
    return [t, b, grads, saved](Context& on) {
      const ComputeType outside = on.compute();
      on.set_compute(b.compute);
      if (grads) {
        backward(on, t, saved);
      } else {
        forward(on, t);
      }
      on.set_compute(outside);
    };
  };
  return c;
}

}  // namespace

std::vector<BenchCase> attention_bench_cases(const Context& ctx) {
  const bool large = ctx.limits().max_binding_size > (uint64_t{1} << 30);
  std::vector<BenchCase> cases;
  for (ComputeType compute : {ComputeType::kF32, ComputeType::kF16}) {
    if (compute == ComputeType::kF16 && !has_attention_matrices(ctx)) continue;
    std::vector<AttentionBench> shapes;
    if (large) shapes.push_back({8, 4, 256, 4, 2048, compute});
    for (int64_t head_dim : {64, 128}) {
      if (!large) {
        shapes.push_back({4, 2, head_dim, 1, 128, compute});
        continue;
      }
      shapes.push_back({32, 8, head_dim, 4, 2048, compute});
      if (compute == ComputeType::kF16) shapes.push_back({32, 8, head_dim, 1, 8192, compute});
    }
    for (const AttentionBench& b : shapes) {
      cases.push_back(bench_case(b, false));
      cases.push_back(bench_case(b, true));
    }
  }
  return cases;
}

}  // namespace wgrad::ops
