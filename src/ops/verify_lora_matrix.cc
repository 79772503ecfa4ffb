#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "ops/launch.h"
#include "ops/lora_matrix.h"
#include "ops/verify_families.h"
#include "ops/verify_product.h"
#include "ops/weight.h"

namespace wgrad::ops {
namespace {

struct Case {
  WeightFormat format;
  int64_t tokens, in, out, rank;
};

constexpr float kScale = 2.0f;

/// Rows whose magnitudes differ by up to a factor of a thousand.
std::vector<float> uneven(int64_t rows, int64_t columns, uint64_t seed) {
  std::vector<float> values = verify_uniform(static_cast<size_t>(rows * columns), seed);
  for (int64_t r = 0; r < rows; ++r) {
    const auto factor = static_cast<float>(std::pow(10.0, static_cast<double>(r % 7) / 2.0 - 2.0));
    for (int64_t c = 0; c < columns; ++c) values[static_cast<size_t>(r * columns + c)] *= factor;
  }
  return values;
}

std::vector<double> row_maxima(const std::vector<float>& values, int64_t columns) {
  std::vector<double> maxima(values.size() / static_cast<size_t>(columns), 0.0);
  for (size_t i = 0; i < values.size(); ++i) {
    double& largest = maxima[i / static_cast<size_t>(columns)];
    largest = std::max(largest, std::abs(static_cast<double>(values[i])));
  }
  return maxima;
}

/// [left | factor right], rows side by side.
std::vector<float> beside(const std::vector<float>& left, int64_t left_columns,
                          const std::vector<float>& right, int64_t right_columns, float factor) {
  std::vector<float> out;
  const auto rows = static_cast<int64_t>(left.size()) / left_columns;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < left_columns; ++c) {
      out.push_back(left[static_cast<size_t>(r * left_columns + c)]);
    }
    for (int64_t c = 0; c < right_columns; ++c) {
      out.push_back(factor * right[static_cast<size_t>(r * right_columns + c)]);
    }
  }
  return out;
}

class LoraRun {
 public:
  LoraRun(Context& ctx, const Case& c)
      : ctx_(ctx),
        c_(c),
        x_(uneven(c.tokens, c.in, 81)),
        a_(verify_uniform(static_cast<size_t>(c.rank * c.in), 82, 0.1f)),
        b_(verify_uniform(static_cast<size_t>(c.out * c.rank), 83, 1e-3f)),
        grad_y_(uneven(c.tokens, c.out, 84)),
        y0_(verify_uniform(static_cast<size_t>(c.tokens * c.out), 85)),
        grad_a0_(verify_uniform(a_.size(), 86)),
        grad_b0_(verify_uniform(b_.size(), 87)),
        check_("lora_matrix",
               fmt::format("{} tokens, {} -> {} -> {}, {}", c.tokens, c.in, c.rank, c.out,
                           c.format == WeightFormat::kNF4 ? "nf4" : "f16 blocks"),
               "matrix") {}

  VerifyResult run() {
    const auto w = verify_uniform(static_cast<size_t>(c_.out * c_.in), 88, 0.05f);
    const Weight weight = load_weight_as(ctx_, c_.format, "verify", c_.out, c_.in,
                                         [&](int64_t begin, int64_t end, std::span<float> rows) {
                                           std::copy(w.begin() + begin * c_.in,
                                                     w.begin() + end * c_.in, rows.begin());
                                         });
    weight_ = ctx_.read<float>(weight_to_f32(ctx_, weight));
    const Tensor a = upload({c_.rank, c_.in}, a_), b = upload({c_.out, c_.rank}, b_);
    const std::pair<Tensor, Tensor> pair(a, b);
    const LoraFactorPack factors(ctx_, {&pair, 1});
    factors.pack(ctx_);
    const LoraHalves& halves = factors.halves()[0];
    LinearInput x(upload({c_.tokens, c_.in}, x_));
    LinearInput grad_y(upload({c_.tokens, c_.out}, grad_y_));
    const Tensor xa = ctx_.allocate({c_.tokens, c_.rank}, DType::kF32, "verify");
    const Tensor grad_xa = ctx_.allocate({c_.tokens, c_.rank}, DType::kF32, "verify");
    const Tensor y = upload({c_.tokens, c_.out}, y0_);
    const Tensor grad_x = ctx_.allocate({c_.tokens, c_.in}, DType::kF32, "verify");
    const Tensor grad_a = upload({c_.rank, c_.in}, grad_a0_);
    const Tensor grad_b = upload({c_.out, c_.rank}, grad_b0_);

    check_.require(lora_fits(ctx_, halves, weight, c_.tokens),
                   "the layer takes its adapter's term");
    const LowRankTerm forward = lora_project_forward(ctx_, x, halves, kScale, xa);
    linear_forward(ctx_, x, weight, Tensor(), y, true, forward);
    const LowRankTerm backward = lora_project_backward(ctx_, grad_y, halves, kScale, grad_xa);
    linear_backward_input(ctx_, grad_y, weight, grad_x, false, backward);
    lora_add_gradients(ctx_, grad_y, xa, kScale, x, grad_xa, grad_b, grad_a);

    seen_xa_ = ctx_.read<float>(xa);
    seen_grad_xa_ = ctx_.read<float>(grad_xa);
    compare_projections();
    compare_layer(ctx_.read<float>(y), ctx_.read<float>(grad_x));
    compare_gradients(ctx_.read<float>(grad_a), ctx_.read<float>(grad_b));
    return check_.result();
  }

 private:
  Tensor upload(Shape shape, const std::vector<float>& values) {
    return ctx_.make(std::move(shape), DType::kF32, std::span<const float>(values), "verify");
  }

  static VerifyProduct product(MatmulOp op, int64_t m, int64_t n, int64_t k) {
    VerifyProduct p;
    p.op = op;
    p.m = m, p.n = n, p.k = k;
    p.per_term = 0x1p-22;
    return p;
  }

  void compare_projections() {
    VerifyProduct xa = product(MatmulOp::kNT, c_.tokens, c_.rank, c_.in);
    xa.a.values = x_, xa.b.values = a_;
    round_operand_to_f16(xa.a, c_.in, true);
    round_operand_to_f16(xa.b, c_.in, false);
    xa.compare(check_, "xa", seen_xa_);
    VerifyProduct grad_xa = product(MatmulOp::kNN, c_.tokens, c_.rank, c_.out);
    grad_xa.a.values = grad_y_, grad_xa.b.values = b_;
    grad_xa.alpha = kScale;
    round_operand_to_f16(grad_xa.a, c_.out, true);
    round_operand_to_f16(grad_xa.b, c_.rank, false);
    grad_xa.compare(check_, "grad_xa", seen_grad_xa_);
  }

  /// The layer and its term are one product of operands side by side.
  void compare_layer(const std::vector<float>& y, const std::vector<float>& grad_x) {
    VerifyProduct forward = product(MatmulOp::kNT, c_.tokens, c_.out, c_.in + c_.rank);
    forward.a.values = beside(x_, c_.in, seen_xa_, c_.rank, kScale);
    forward.b.values = beside(weight_, c_.in, b_, c_.rank, 1.0f);
    forward.c = y0_;
    round_operand_to_f16(forward.a, c_.in + c_.rank, true);
    round_operand_to_f16(forward.b, c_.in + c_.rank, false);
    forward.compare(check_, "y", y);
    VerifyProduct backward = product(MatmulOp::kNN, c_.tokens, c_.in, c_.out + c_.rank);
    backward.a.values = beside(grad_y_, c_.out, seen_grad_xa_, c_.rank, 1.0f);
    backward.b.values = weight_;
    backward.b.values.insert(backward.b.values.end(), a_.begin(), a_.end());
    round_operand_to_f16(backward.a, c_.out + c_.rank, true);
    round_operand_to_f16(backward.b, c_.in, false);
    backward.compare(check_, "grad_x", grad_x);
  }

  /// wide^T small: a row of small takes the power of its row of wide before it becomes f16, and
  /// rows of a part share one power.
  void compare_gradient(std::string_view name, const std::vector<float>& wide, int64_t width,
                        const std::vector<float>& small, float alpha,
                        const std::vector<float>& start, const std::vector<float>& seen) {
    VerifyProduct p = product(MatmulOp::kTN, width, c_.rank, c_.tokens);
    p.a.values = wide, p.b.values = small, p.c = start;
    p.alpha = alpha;
    round_operand_to_f16(p.a, width, true);
    round_operand_to_f16(p.b, c_.rank, true);
    const auto of_wide = row_maxima(wide, width), of_small = row_maxima(small, c_.rank);
    double largest = 0.0;
    for (size_t t = 0; t < of_wide.size(); ++t) {
      largest = std::max(largest, of_wide[t] * of_small[t]);
    }
    for (size_t t = 0; t < of_wide.size(); ++t) {
      p.b.absolute[t] = 0x1p-26 * largest / std::max(of_wide[t], 1e-30);
    }
    p.compare(check_, name, seen);
  }

  void compare_gradients(const std::vector<float>& grad_a, const std::vector<float>& grad_b) {
    compare_gradient("grad_b", grad_y_, c_.out, seen_xa_, kScale, grad_b0_, grad_b);
    const auto transposed = [&](const std::vector<float>& of) {
      std::vector<float> out(of.size());
      for (int64_t r = 0; r < c_.rank; ++r) {
        for (int64_t k = 0; k < c_.in; ++k) {
          out[static_cast<size_t>(k * c_.rank + r)] = of[static_cast<size_t>(r * c_.in + k)];
        }
      }
      return out;
    };
    compare_gradient("grad_a", x_, c_.in, seen_grad_xa_, 1.0f, transposed(grad_a0_),
                     transposed(grad_a));
  }

  Context& ctx_;
  Case c_;
  std::vector<float> x_, a_, b_, grad_y_, y0_, grad_a0_, grad_b0_;
  std::vector<float> weight_, seen_xa_, seen_grad_xa_;
  VerifyCheck check_;
};

/// A factor [rows, columns] times its power, padded with zeros.
std::vector<float> scaled(const std::vector<float>& values, int64_t columns, float power,
                          int64_t padded_rows, int64_t padded_columns) {
  std::vector<float> out(static_cast<size_t>(padded_rows * padded_columns));
  for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
    out[static_cast<size_t>(i / columns * padded_columns + i % columns)] =
        values[static_cast<size_t>(i)] * power;
  }
  return out;
}

std::vector<float> read_halves(Context& ctx, const Tensor& halves) {
  std::vector<float> out;
  for (const uint16_t word : ctx.read<uint16_t>(halves)) {
    out.push_back(static_cast<float>(half_value(word)));
  }
  return out;
}

/// Values that f16 holds exactly at any power, the largest one last or in the middle.
VerifyResult factors_case(Context& ctx, const std::string& what, int64_t rank, int64_t in,
                          int64_t out) {
  VerifyCheck check("lora_pack_factors", what, "core");
  const auto values = [](int64_t n, int seed) {
    std::vector<float> v(static_cast<size_t>(n));
    for (size_t i = 0; i < v.size(); ++i) {
      v[i] =
          std::ldexp(static_cast<float>((i * 7919 + static_cast<size_t>(seed)) % 1000) - 500, -12);
    }
    return v;
  };
  std::vector<float> a = values(rank * in, 3), b = values(out * rank, 5);
  a.back() = -3.0f;
  b[b.size() / 2] = 5.0f;
  const Tensor ta = ctx.make<float>({rank, in}, DType::kF32, a, "verify");
  const Tensor tb = ctx.make<float>({out, rank}, DType::kF32, b, "verify");
  // One pair whose factors lie in buffers of their own, one in one buffer with something before.
  const int64_t begin_a = 64, begin_b = ceil_div(begin_a + rank * in, 64) * 64;
  std::vector<float> flat(static_cast<size_t>(begin_b + out * rank), 1e30f);
  std::copy(a.begin(), a.end(), flat.begin() + begin_a);
  std::copy(b.begin(), b.end(), flat.begin() + begin_b);
  const Tensor tf =
      ctx.make<float>({static_cast<int64_t>(flat.size())}, DType::kF32, flat, "verify");
  const std::array<std::pair<Tensor, Tensor>, 3> pairs = {
      std::pair(ta, tb), std::pair<Tensor, Tensor>(),
      std::pair(tf.flat(begin_a, rank * in).reshape({rank, in}),
                tf.flat(begin_b, out * rank).reshape({out, rank}))};
  const LoraFactorPack pack(ctx, pairs);
  pack.pack(ctx);
  check.require(!pack.halves()[1], "no pair has no halves");
  for (const LoraHalves& of : {pack.halves()[0], pack.halves()[2]}) {
    check.require(
        ctx.read<float>(of.powers) == std::vector<float>{0x1p13f, 0x1p-13f, 0x1p12f, 0x1p-12f},
        "the powers bring 3 and 5 into [2^14, 2^15)");
    check.require(read_halves(ctx, of.a) == scaled(a, in, 0x1p13f, of.a.dim(0), of.a.dim(1)),
                  "a's halves are exact, zero where padded");
    check.require(read_halves(ctx, of.b) == scaled(b, rank, 0x1p12f, of.b.dim(0), of.b.dim(1)),
                  "b's halves are exact, zero where padded");
  }
  return check.result();
}

}  // namespace

void add_lora_matrix_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases) {
  if (ctx.kind() == DeviceKind::kCpu) return;
  for (const auto& [rank, in, out] :
       {std::array<int64_t, 3>{4, 4, 33}, {16, 4100, 260}, {24, 36, 2000}}) {
    const std::string what = fmt::format("{} -> {} -> {}", in, rank, out);
    cases.push_back({"lora_pack_factors", what, [=, rank = rank, in = in, out = out](Context& c) {
                       return factors_case(c, what, rank, in, out);
                     }});
  }
  if (!has_f16_product(ctx)) return;
  // Ranks that are padded, widths that are no multiple of a block, rows that leave panels open,
  // parts of the rows and blocks of every kind.
  std::vector<Case> all = {{WeightFormat::kF16Blocks, 64, 32, 33, 4},
                           {WeightFormat::kF16Blocks, 77, 100, 260, 8},
                           {WeightFormat::kNF4, 130, 136, 72, 16},
                           {WeightFormat::kF16Blocks, 300, 64, 500, 24},
                           {WeightFormat::kF16Blocks, 1100, 544, 48, 64}};
  if (level == VerifyLevel::kFull) {
    all.push_back({WeightFormat::kF16Blocks, 8200, 160, 40, 16});
    all.push_back({WeightFormat::kF16Blocks, 2048, 512, 3072, 16});
    all.push_back({WeightFormat::kNF4, 512, 1024, 2048, 32});
  }
  for (const Case& c : all) {
    cases.push_back({"lora_matrix",
                     fmt::format("{} tokens, {} -> {} -> {}", c.tokens, c.in, c.rank, c.out),
                     [c](Context& context) {
                       const ComputeType before = context.compute();
                       context.set_compute(ComputeType::kF16);
                       VerifyResult result = LoraRun(context, c).run();
                       context.set_compute(before);
                       return result;
                     }});
  }
}

}  // namespace wgrad::ops
