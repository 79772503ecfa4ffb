#include "ops/linear.h"

#include <fmt/format.h>

#include <algorithm>

#include "cpu/bias.h"
#include "cpu/matmul.h"
#include "cpu/nf4.h"
#include "ops/column_sums.h"
#include "ops/f16_blocks.h"
#include "ops/launch.h"
#include "ops/matmul.h"
#include "ops/matmul_f16.h"
#include "ops/matmul_f32.h"
#include "ops/matvec.h"
#include "ops/nf4.h"
#include "ops/nf4_product.h"
#include "ops/window.h"
#include "wgrad/error.h"

namespace wgrad::ops {

namespace {

/// Its products take f16 blocks, in a context that computes in f16.
bool has_f16_blocks(const Weight& w) {
  return w.format == WeightFormat::kF16Blocks ||
         (w.format == WeightFormat::kNF4 && w.in_features % 8 == 0);
}

/// y[m, n] (+)= x W^T + bias (kNT), or y[m, n] (+)= x W (kNN).
struct LinearCall {
  MatmulOp op;
  const Tensor& x;  ///< empty where only its packed form exists
  const Weight& weight;
  const Tensor& bias;
  const Tensor& y;
  bool accumulate;
  LinearInput* shared = nullptr;  ///< x, where others take it too
  LowRankTerm term = {};

  int64_t m() const { return x ? x.dim(0) : shared->tokens(); }
  int64_t n() const { return y.dim(1); }
  int64_t k() const { return x ? x.dim(1) : shared->columns(); }
};

void check(std::string_view function, const LinearCall& c) {
  const Weight& w = c.weight;
  const bool forward = c.op == MatmulOp::kNT;
  const int64_t from = forward ? w.in_features : w.out_features;
  const int64_t to = forward ? w.out_features : w.in_features;
  if (!w) throw runtime_failure(function, "an empty weight", "expected one on the device");
  const std::string_view name = forward ? "x" : "grad_y";
  if (c.shared == nullptr || c.x) {
    expect_matrix(function, name, c.x, DType::kF32);
    expect_tensor(function, name, c.x, DType::kF32, {c.m(), from});
  } else if (c.k() != from || !has_f16_blocks(c.weight) || c.m() <= kMatvecRows) {
    throw runtime_failure(
        function, fmt::format("{} packed as [{}, {}]", name, c.m(), c.k()),
        fmt::format("expected [{}, {}] for a weight that multiplies in f16", c.m(), from));
  }
  expect_tensor(function, forward ? "y" : "grad_x", c.y, DType::kF32, {c.m(), to});
  if (c.bias) expect_tensor(function, "bias", c.bias, DType::kF32, {to});
  if (c.term && !has_f16_blocks(c.weight)) {
    throw runtime_failure(function, "a low-rank term", "expected a weight that multiplies in f16");
  }
}

void run_cpu(const LinearCall& c) {
  const auto op = c.op == MatmulOp::kNT ? cpu::MatmulOp::kNT : cpu::MatmulOp::kNN;
  float* y = c.y.data<float>();
  if (c.weight.format == WeightFormat::kNF4) {
    cpu::matmul_nf4(op, c.m(), c.weight.out_features, c.weight.in_features, c.x.data<float>(),
                    c.k(), nf4_view(c.weight), y, c.n(), 1.0f, c.accumulate);
  } else {
    cpu::matmul(op, c.m(), c.n(), c.k(), c.x.data<float>(), c.k(), c.weight.data.data<float>(),
                c.weight.in_features, y, c.n(), 1.0f, c.accumulate);
  }
  if (c.bias) cpu::add_bias(y, c.bias.data<float>(), c.m(), c.n());
}

Product product_of(const LinearCall& c, const Tensor& w) {
  Product p;
  p.op = c.op;
  p.m = c.m(), p.n = c.n(), p.k = c.k();
  p.a = c.x, p.b = w, p.c = c.y, p.bias = c.bias;
  p.lda = c.k(), p.ldb = c.weight.in_features, p.ldc = c.n();
  p.accumulate = c.accumulate;
  return p;
}

bool computes_f16(const Context& ctx) {
  return ctx.compute() == ComputeType::kF16 && has_f16_product(ctx);
}

/// Calls body() for parts of the rows whose packed form fits a binding, with the part as the
/// product's A and C.
template <typename Body>
void for_packed_parts(Context& ctx, const LinearCall& c, F16Product& p, const Body& body) {
  const int64_t step = f16_rows_at_once(ctx, c.k());
  for (int64_t begin = 0; begin < c.m(); begin += step) {
    const int64_t end = std::min(c.m(), begin + step);
    p.m = end - begin;
    p.a = c.shared != nullptr ? c.shared->packed(ctx, begin, end)
                              : pack_f16_rows(ctx, c.x.rows(begin, end), p.m, c.k());
    p.c = c.y.rows(begin, end);
    body();
  }
}

void run_f32(Context& ctx, const LinearCall& c) {
  if (!computes_f16(ctx) || c.m() <= kMatvecRows) {
    product_f32(ctx, product_of(c, c.weight.data));
    return;
  }
  F16Product p;
  p.op = c.op;
  p.n = c.n(), p.k = c.k();
  p.b = pack_f16_right(ctx, c.op, c.weight.data);
  p.ldc = c.n();
  p.bias = c.bias;
  p.accumulate = c.accumulate;
  for_packed_parts(ctx, c, p, [&] { product_f16(ctx, p); });
}

void run_f16(Context& ctx, const LinearCall& c) {
  Product p = product_of(c, c.weight.data);
  p.alpha = c.weight.scale;
  product_f32(ctx, p);
}

MatvecCall matvec_call(const LinearCall& c, MatvecWeight format, int64_t begin, int64_t end) {
  MatvecCall call;
  call.weight = format;
  call.m = c.m(), call.n = end - begin, call.k = c.k();
  call.x = c.x, call.y = c.y;
  if (c.bias) call.bias = c.bias.flat(begin, end - begin);
  call.ldx = c.k(), call.ldy = c.n();
  call.y_column = begin;
  call.accumulate = c.accumulate;
  return call;
}

bool fits_matvec(const LinearCall& c, MatvecWeight format) {
  return c.op == MatmulOp::kNT && fits_matvec(matvec_call(c, format, 0, c.n()));
}

/// Rows of x times f16 blocks. The weight comes in groups of `group_rows`: blocks(begin, rows)
/// gives one.
template <typename Blocks>
void run_blocks(Context& ctx, const LinearCall& c, int64_t group_rows, const Blocks& blocks) {
  const bool forward = c.op == MatmulOp::kNT;
  const int64_t out_features = c.weight.out_features;
  F16Product p;
  p.op = c.op;
  p.b.scale = c.weight.scale;
  p.b.columns = c.weight.in_features;
  p.ldc = c.n();
  p.n = c.n(), p.k = c.k();
  for_packed_parts(ctx, c, p, [&] {
    for (int64_t row = 0; row < out_features; row += group_rows) {
      p.b.rows = std::min(group_rows, out_features - row);
      p.b.blocks = blocks(row, p.b.rows);
      p.accumulate = c.accumulate || (!forward && row > 0);
      p.low_rank = c.term;
      if (forward) {
        p.n = p.b.rows;
        p.c_column = row;
        p.low_rank.column += row;
        if (c.bias) p.bias = c.bias.flat(row, p.b.rows);
      } else {
        p.k = p.b.rows;
        p.a_column = row;
        if (row > 0) p.low_rank = {};
      }
      product_f16(ctx, p);
    }
  });
}

void run_f16_blocks(Context& ctx, const LinearCall& c) {
  const Weight& w = c.weight;
  if (!fits_matvec(c, MatvecWeight::kF16Blocks)) {
    run_blocks(ctx, c, w.out_features, [&](int64_t, int64_t) { return w.data; });
    return;
  }
  const int64_t step = f16_rows_at_once(ctx, w.in_features);
  for (int64_t begin = 0; begin < w.out_features; begin += step) {
    const int64_t end = std::min(w.out_features, begin + step);
    MatvecCall call = matvec_call(c, MatvecWeight::kF16Blocks, begin, end);
    call.w = w.data.flat(f16_blocks_size(begin, w.in_features),
                         f16_blocks_size(end - begin, w.in_features));
    call.w_stride = f16_padded(w.in_features) / 16;
    call.alpha = w.scale;
    run_matvec(ctx, call);
  }
}

void run_nf4_matvec(Context& ctx, const LinearCall& c) {
  const Weight& w = c.weight;
  for_row_parts(ctx, "linear", w.out_features, w.in_features / 2, [&](int64_t begin, int64_t end) {
    const Nf4Window codes = nf4_window(w, begin, end - begin);
    MatvecCall call = matvec_call(c, MatvecWeight::kNF4, begin, end);
    call.w = codes.tensor;
    call.w_offset = (begin * w.in_features - codes.origin) / 8;
    call.w_stride = w.in_features / 8;
    call.origin = codes.origin;
    call.absmax_codes = w.absmax_codes;
    call.absmax_scales = w.absmax_scales;
    call.absmax_offset = w.absmax_offset;
    run_matvec(ctx, call);
  });
}

/// NF4 weights are decoded a group of rows at a time into scratch of bounded size.
void run_nf4(Context& ctx, const LinearCall& c) {
  constexpr int64_t kScratchBytes = int64_t{128} << 20;
  const Weight& w = c.weight;
  const Nf4Product few{c.op, w, c.x, c.bias, c.y, c.accumulate, c.shared};
  if (nf4_takes_vectors(ctx, few)) return nf4_vector_product(ctx, few);
  if (!c.term && nf4_takes_matrices(ctx, few)) return nf4_matrix_product(ctx, few);
  if (fits_matvec(c, MatvecWeight::kNF4)) return run_nf4_matvec(ctx, c);
  const bool f16 = computes_f16(ctx) && w.in_features % 8 == 0;
  const int64_t row_bytes = f16 ? f16_padded(w.in_features) * 2 : w.in_features * 4;
  const int64_t within = rows_per_binding(ctx, "linear", w.out_features, row_bytes);
  const int64_t wanted = std::max<int64_t>(kScratchBytes / row_bytes / 64 * 64, 64);
  const int64_t step = std::min({within, wanted, w.out_features});
  if (f16) {
    const Tensor scratch =
        ctx.allocate({f16_blocks_size(step, w.in_features)}, DType::kF16, "scratch/nf4");
    run_blocks(ctx, c, step, [&](int64_t begin, int64_t rows) {
      nf4_dequantise_blocks(ctx, w, begin, rows, scratch);
      return scratch.flat(0, f16_blocks_size(rows, w.in_features));
    });
    return;
  }
  const Tensor scratch = ctx.allocate({step, w.in_features}, DType::kF32, "scratch/nf4");
  for (int64_t begin = 0; begin < w.out_features; begin += step) {
    const int64_t rows = std::min(step, w.out_features - begin);
    nf4_dequantise_rows(ctx, w, begin, scratch.rows(0, rows));
    Product p = product_of(c, scratch.rows(0, rows));
    if (c.op == MatmulOp::kNT) {
      p.n = rows;
      p.c_column = begin;
      if (c.bias) p.bias = c.bias.flat(begin, rows);
    } else {
      p.k = rows;
      p.a_column = begin;
      p.accumulate = c.accumulate || begin > 0;
    }
    product_f32(ctx, p);
  }
}

void run(Context& ctx, std::string_view function, const LinearCall& c) {
  check(function, c);
  if (c.m() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) return run_cpu(c);
  if (ctx.modelled() == DeviceKind::kCpu) return;
  switch (c.weight.format) {
    case WeightFormat::kF32:
      return run_f32(ctx, c);
    case WeightFormat::kF16:
      return run_f16(ctx, c);
    case WeightFormat::kF16Blocks:
      return run_f16_blocks(ctx, c);
    case WeightFormat::kNF4:
      return run_nf4(ctx, c);
  }
}

}  // namespace

const F16Operand& LinearInput::packed(Context& ctx, int64_t begin, int64_t end) {
  const auto [at, missing] = parts_.try_emplace({begin, end});
  if (missing) {
    if (!rows_) {
      throw runtime_failure("linear", fmt::format("rows {} to {} of a packed input", begin, end),
                            fmt::format("expected all {} of them", tokens()));
    }
    at->second = pack_f16_rows(ctx, rows_.rows(begin, end), end - begin, rows_.dim(1));
  }
  return at->second;
}

bool linear_takes_packed(const Context& ctx, const Weight& weight, int64_t tokens) {
  constexpr int64_t kFewestTokens = 64;  // fewer leave the tiles mostly empty
  return computes_f16(ctx) && has_f16_blocks(weight) && tokens >= kFewestTokens &&
         tokens <= f16_rows_at_once(ctx, std::max(weight.in_features, weight.out_features));
}

void linear_forward(Context& ctx, const Tensor& x, const Weight& weight, const Tensor& bias,
                    const Tensor& y, bool accumulate) {
  run(ctx, "linear_forward", {MatmulOp::kNT, x, weight, bias, y, accumulate});
}

void linear_forward(Context& ctx, LinearInput& x, const Weight& weight, const Tensor& bias,
                    const Tensor& y, bool accumulate, const LowRankTerm& term) {
  run(ctx, "linear_forward", {MatmulOp::kNT, x.rows(), weight, bias, y, accumulate, &x, term});
}

void linear_backward_input(Context& ctx, const Tensor& grad_y, const Weight& weight,
                           const Tensor& grad_x, bool accumulate) {
  run(ctx, "linear_backward_input", {MatmulOp::kNN, grad_y, weight, Tensor(), grad_x, accumulate});
}

void linear_backward_input(Context& ctx, LinearInput& grad_y, const Weight& weight,
                           const Tensor& grad_x, bool accumulate, const LowRankTerm& term) {
  run(ctx, "linear_backward_input",
      {MatmulOp::kNN, grad_y.rows(), weight, Tensor(), grad_x, accumulate, &grad_y, term});
}

void linear_backward_weight(Context& ctx, const Tensor& grad_y, const Tensor& x,
                            const Tensor& grad_w) {
  const MatmulOptions options{.accumulate = true};
  if (ctx.compute() == ComputeType::kF16) {
    matmul_f16(ctx, MatmulOp::kTN, grad_y, x, grad_w, options);
  } else {
    matmul(ctx, MatmulOp::kTN, grad_y, x, grad_w, options);
  }
}

void bias_backward(Context& ctx, const Tensor& grad_y, const Tensor& grad_bias) {
  expect_matrix("bias_backward", "grad_y", grad_y, DType::kF32);
  const int64_t rows = grad_y.dim(0), n = grad_y.dim(1);
  expect_tensor("bias_backward", "grad_bias", grad_bias, DType::kF32, {n});
  if (rows == 0 || n == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::bias_backward(grad_y.data<float>(), grad_bias.data<float>(), rows, n);
    return;
  }
  if (ctx.modelled() == DeviceKind::kCpu) return;
  add_column_sums(ctx, grad_y, grad_bias);
}

}  // namespace wgrad::ops
