#include <fmt/format.h>

#include <utility>

#include "ops/bench.h"
#include "ops/linear.h"
#include "ops/matmul.h"
#include "ops/matmul_f16.h"
#include "ops/verify.h"
#include "ops/weight.h"

namespace wgrad::ops {

namespace {

struct Size {
  int64_t m, n, k;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  /// Of operands and result in f32.
  double bytes() const { return 4.0 * static_cast<double>(m * k + n * k + m * n); }
  std::string text() const { return fmt::format("{}x{}x{}", m, n, k); }
};

const char* name_of(MatmulOp op) {
  return op == MatmulOp::kNT ? "NT" : op == MatmulOp::kNN ? "NN" : "TN";
}

/// Rows of random numbers, one row again and again: enough to keep a device from taking shortcuts.
Tensor random(Context& ctx, int64_t rows, int64_t columns) {
  const Tensor t = ctx.allocate({rows, columns}, DType::kF32, "bench");
  const std::vector<float> some = verify_uniform(static_cast<size_t>(columns) * 64, 7);
  for (int64_t row = 0; row < rows; row += 64) {
    const Tensor part = t.rows(row, std::min(rows, row + 64));
    ctx.upload(part, std::span<const float>(some).first(static_cast<size_t>(part.size())));
  }
  return t;
}

BenchCase product_case(MatmulOp op, Size s, bool f16) {
  BenchCase c;
  c.name = fmt::format("{} {} {}", f16 ? "matmul_f16" : "matmul", name_of(op), s.text());
  c.flops = s.flops();
  c.bytes = s.bytes();
  c.prepare = [=](Context& ctx) {
    const Tensor a = op == MatmulOp::kTN ? random(ctx, s.k, s.m) : random(ctx, s.m, s.k);
    const Tensor b = op == MatmulOp::kNT ? random(ctx, s.n, s.k) : random(ctx, s.k, s.n);
    const Tensor y = ctx.allocate({s.m, s.n}, DType::kF32, "bench");
    return [=](Context& ctx) {
      if (f16) {
        matmul_f16(ctx, op, a, b, y);
      } else {
        matmul(ctx, op, a, b, y);
      }
    };
  };
  return c;
}

/// The product alone, its operands packed beforehand.
BenchCase packed_case(MatmulOp op, Size s) {
  BenchCase c;
  c.name = fmt::format("product_f16 {} {} (operands packed before)", name_of(op), s.text());
  c.flops = s.flops();
  c.bytes = 2.0 * static_cast<double>(s.m * s.k + s.n * s.k) + 4.0 * static_cast<double>(s.m * s.n);
  c.prepare = [=](Context& ctx) {
    F16Product p;
    p.op = op;
    p.m = s.m, p.n = s.n, p.k = s.k, p.ldc = s.n;
    const int64_t a_rows = op == MatmulOp::kTN ? s.k : s.m, a_columns = s.m + s.k - a_rows;
    const int64_t b_rows = op == MatmulOp::kNT ? s.n : s.k, b_columns = s.n + s.k - b_rows;
    const Tensor a = random(ctx, a_rows, a_columns), b = random(ctx, b_rows, b_columns);
    p.a = op == MatmulOp::kTN ? pack_f16_scaled(ctx, a, a_rows, a_columns, amax_scale(ctx, a))
                              : pack_f16_rows(ctx, a, a_rows, a_columns);
    p.b = op == MatmulOp::kNT ? pack_f16_rows(ctx, b, b_rows, b_columns)
                              : pack_f16_scaled(ctx, b, b_rows, b_columns, amax_scale(ctx, b));
    p.c = ctx.allocate({s.m, s.n}, DType::kF32, "bench");
    return [p](Context& ctx) { product_f16(ctx, p); };
  };
  return c;
}

const char* name_of(WeightFormat format) {
  return format == WeightFormat::kF32   ? "f32"
         : format == WeightFormat::kNF4 ? "nf4"
         : format == WeightFormat::kF16 ? "f16"
                                        : "f16 blocks";
}

double weight_bytes(WeightFormat format, Size s) {
  const double elements = static_cast<double>(s.n) * static_cast<double>(s.k);
  return elements * (format == WeightFormat::kF32   ? 4.0
                     : format == WeightFormat::kNF4 ? 0.516
                                                    : 2.0);
}

/// s: tokens x out x in.
BenchCase linear_case(WeightFormat format, Size s, bool backward, ComputeType compute) {
  BenchCase c;
  c.name = fmt::format("{} {} weight{} {} tokens, {} -> {}",
                       backward ? "linear_backward_input" : "linear_forward", name_of(format),
                       compute == ComputeType::kF16 ? ", f16 product," : ",", s.m, s.k, s.n);
  const int64_t few = format == WeightFormat::kNF4 ? 64 : 8;  // tokens up to which memory bounds it
  c.flops = s.m > few ? s.flops() : 0.0;
  c.bytes = weight_bytes(format, s) + 4.0 * static_cast<double>(s.m * (s.n + s.k));
  c.prepare = [=](Context& ctx) {
    const std::vector<float> rows = verify_uniform(static_cast<size_t>(s.k) * 64, 8, 0.05f);
    const Weight w = load_weight_as(ctx, format, "bench", s.n, s.k,
                                    [&](int64_t begin, int64_t end, std::span<float> out) {
                                      for (int64_t row = 0; row < end - begin; ++row) {
                                        const auto from = rows.begin() + (begin + row) % 64 * s.k;
                                        std::copy(from, from + s.k, out.begin() + row * s.k);
                                      }
                                    });
    const Tensor x = random(ctx, s.m, s.k), y = random(ctx, s.m, s.n);
    return [=](Context& ctx) {
      const ComputeType before = ctx.compute();
      ctx.set_compute(compute);
      if (backward) {
        linear_backward_input(ctx, y, w, x, false);
      } else {
        linear_forward(ctx, x, w, Tensor(), y);
      }
      ctx.set_compute(before);
    };
  };
  return c;
}

BenchCase lora_case(int64_t tokens, int64_t in, int64_t out, int64_t rank, bool backward) {
  BenchCase c;
  c.name = fmt::format("{} {} tokens, {} -> {} -> {}", backward ? "lora_backward" : "lora_forward",
                       tokens, in, rank, out);
  const auto wide = static_cast<double>(tokens) * static_cast<double>(in + out);
  c.flops = wide * static_cast<double>(rank) * (backward ? 4.0 : 2.0);
  // Forward reads x and reads and writes y; backward reads grad_y twice and x, and reads and writes
  // grad_x.
  const auto x_bytes = 4.0 * static_cast<double>(tokens * in);
  const auto y_bytes = 4.0 * static_cast<double>(tokens * out);
  c.bytes = backward ? 3 * x_bytes + 2 * y_bytes : x_bytes + 2 * y_bytes;
  c.prepare = [=](Context& ctx) {
    const Tensor x = random(ctx, tokens, in), y = random(ctx, tokens, out);
    const Tensor a = random(ctx, rank, in), b = random(ctx, out, rank);
    const Tensor xa = random(ctx, tokens, rank), grad_xa = random(ctx, tokens, rank);
    const Tensor grad_a = random(ctx, rank, in), grad_b = random(ctx, out, rank);
    const Tensor grad_x = random(ctx, tokens, in);
    return [=](Context& ctx) {
      if (backward) {
        lora_backward(ctx, x, xa, a, b, 1e-3f, y, grad_xa, grad_a, grad_b, grad_x);
      } else {
        lora_forward(ctx, x, a, b, 1e-3f, xa, y);
      }
    };
  };
  return c;
}

}  // namespace

std::vector<BenchCase> matmul_bench_cases(const Context& ctx) {
  const bool real = ctx.modelled() == DeviceKind::kGpu && ctx.features().subgroup_min_size >= 16;
  const int64_t n = real ? 4096 : 512, few = real ? 512 : 64;
  const Size square{n, n, n};
  std::vector<BenchCase> cases;
  for (MatmulOp op : {MatmulOp::kNT, MatmulOp::kNN, MatmulOp::kTN}) {
    cases.push_back(product_case(op, square, false));
    cases.push_back(product_case(op, {few, n, n}, false));
  }
  const bool matrix = has_f16_product(ctx);
  if (matrix) {
    for (MatmulOp op : {MatmulOp::kNT, MatmulOp::kNN, MatmulOp::kTN}) {
      cases.push_back(packed_case(op, square));
      cases.push_back(packed_case(op, {few, n, n}));
      cases.push_back(product_case(op, square, true));
    }
  }
  std::vector<WeightFormat> formats = {WeightFormat::kF32, WeightFormat::kNF4};
  if (ctx.modelled() == DeviceKind::kGpu) formats.push_back(WeightFormat::kF16);
  if (matrix) formats.push_back(WeightFormat::kF16Blocks);
  for (WeightFormat format : formats) {
    const bool nf4 = format == WeightFormat::kNF4;
    cases.push_back(
        linear_case(format, {1, n, n}, false, nf4 ? ComputeType::kF16 : ComputeType::kF32));
    if (format == WeightFormat::kF32) continue;
    if (format == WeightFormat::kF16Blocks) {
      cases.push_back(linear_case(format, {1, n * 7 / 2, n}, false, ComputeType::kF32));
      cases.push_back(linear_case(format, {1, n, n * 7 / 2}, false, ComputeType::kF32));
    }
    const ComputeType compute = matrix ? ComputeType::kF16 : ComputeType::kF32;
    if (nf4) {
      const int64_t wide = n * 7 / 2;
      for (int64_t tokens : {1, 2, 4, 16, 64}) {
        if (tokens > 1) cases.push_back(linear_case(format, {tokens, n, n}, false, compute));
        cases.push_back(linear_case(format, {tokens, wide, n}, false, compute));
        cases.push_back(linear_case(format, {tokens, n, wide}, false, compute));
      }
      cases.push_back(linear_case(format, {16, wide, n}, true, compute));
      cases.push_back(linear_case(format, {64, wide, n}, true, compute));
      cases.push_back(linear_case(format, {few, wide, n}, false, compute));
    }
    for (int64_t tokens : {few, n}) {
      cases.push_back(linear_case(format, {tokens, n, n}, false, compute));
      cases.push_back(linear_case(format, {tokens, n, n}, true, compute));
    }
  }
  for (int64_t rank : {16, 64}) {
    cases.push_back(lora_case(n / 2, n, n, rank, false));
    cases.push_back(lora_case(n / 2, n, n, rank, true));
  }
  return cases;
}

}  // namespace wgrad::ops
