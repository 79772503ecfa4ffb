#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cpu/cross_entropy.h"
#include "cpu/linear_cross_entropy.h"
#include "ops/loss.h"
#include "ops/verify_families.h"

namespace wgrad::ops {
namespace {

constexpr double u = kF32Rounding;

struct LossCase {
  int64_t rows, vocab;
  bool decades;  ///< logits of ten decades rather than within 20 of each other
};

/// Labels with the ends of the vocabulary, -100, and others outside it.
std::vector<int32_t> labels_of(LossCase c) {
  std::vector<int32_t> labels(static_cast<size_t>(c.rows));
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<int32_t>(i * 40503u % static_cast<size_t>(c.vocab));
  }
  const size_t n = labels.size();
  labels[0] = static_cast<int32_t>(c.vocab - 1);
  if (n > 2) labels[1] = kIgnoreLabel;
  if (n > 3) labels[2] = 0;
  if (n > 4) labels[3] = static_cast<int32_t>(c.vocab);
  if (n > 5) labels[4] = -1;
  return labels;
}

/// Error of the logsumexp: exp() may err by 3 + 2|x| ulp, which averages below 6 + 6 ln V roundings
/// over a row; runs of 16 batches, the runs, vectors and the tree add up to 48 at most up to a
/// vocabulary of 2^20; log() errs by 2^-21 or 3 ulp; the sum with the largest logit is rounded.
double logsumexp_bound(double lse, int64_t vocab) {
  const double sum = 6.0 + 6.0 * std::log(static_cast<double>(vocab)) + 48.0;
  return (sum + 8.0 + 6.0 * std::log(static_cast<double>(vocab)) + 2.0 * std::abs(lse)) * u;
}

VerifyResult cross_entropy_case(Context& ctx, const std::string& what, LossCase c) {
  VerifyCheck check("cross_entropy", what, reduction_path(ctx));
  const size_t rows = static_cast<size_t>(c.rows), vocab = static_cast<size_t>(c.vocab);
  const std::vector<float> logits =
      c.decades ? verify_decades(rows * vocab, 71) : verify_uniform(rows * vocab, 71, 10.0f);
  const std::vector<int32_t> labels = labels_of(c);
  const float scale = 0.125f;
  std::vector<double> gradient = to_double(logits), losses(rows), lse(rows);
  cpu::cross_entropy_forward(gradient.data(), labels.data(), losses.data(), lse.data(), c.rows,
                             c.vocab);

  const Tensor tl = ctx.make<float>({c.rows, c.vocab}, DType::kF32, logits, "verify");
  const Tensor tlabels = ctx.make<int32_t>({c.rows}, DType::kI32, labels, "verify");
  const Tensor tlosses = ctx.allocate({c.rows}, DType::kF32, "verify");
  const Tensor tlse = ctx.allocate({c.rows}, DType::kF32, "verify");
  cross_entropy_forward(ctx, tl, tlabels, tlosses, tlse);
  const std::vector<float> seen_losses = ctx.read<float>(tlosses), seen_lse = ctx.read<float>(tlse);
  check.compare("logsumexp", seen_lse, lse,
                [&](size_t r) { return logsumexp_bound(lse[r], c.vocab); });
  check.compare("losses", seen_losses, losses, [&](size_t r) {
    const double bound = logsumexp_bound(lse[r], c.vocab) + 2.0 * u * std::abs(losses[r]);
    return c.decades ? bound : std::min(bound, 1e-5);
  });
  for (size_t r = 0; r < rows; ++r) {
    const bool counts = labels[r] >= 0 && labels[r] < c.vocab;
    check.require(seen_losses[r] >= 0.0f, "a loss is not negative");
    if (!counts) check.require(seen_losses[r] == 0.0f, "a row that does not count has loss 0");
  }

  cross_entropy_backward(ctx, tl, tlabels, tlse, scale);
  const std::vector<float> seen = ctx.read<float>(tl);
  cpu::cross_entropy_backward(gradient.data(), labels.data(), to_double(seen_lse).data(), c.rows,
                              c.vocab, static_cast<double>(scale));
  check.compare("gradient", seen, gradient, [&](size_t i) {
    const double down =
        std::min(std::abs(static_cast<double>(logits[i]) - seen_lse[i / vocab]), 90.0);
    const double p = std::exp(-down);
    return scale * ((8.0 + 6.0 * down) * p + std::abs(gradient[i]) / scale) * u + 2e-38;
  });
  for (size_t r = 0; r < rows; ++r) {
    const auto row = std::span(seen).subspan(r * vocab, vocab);
    if (labels[r] < 0 || labels[r] >= c.vocab) {
      check.require(std::all_of(row.begin(), row.end(), [](float g) { return g == 0.0f; }),
                    "a row that does not count has gradient exactly 0");
      continue;
    }
    double sum = 0.0, largest = 0.0;
    for (float g : row) {
      sum += static_cast<double>(g);
      largest = std::max(largest, std::abs(static_cast<double>(g)));
    }
    // The logsumexp's error moves every probability; each has its own error besides.
    const double bound = logsumexp_bound(lse[r], c.vocab) + logsumexp_bound(0, c.vocab);
    check.measure(fmt::format("sum of gradient row {}", r), std::abs(sum), scale * bound);
    check.require(largest <= scale, "each element of the gradient is within the scale");
  }
  return check.result();
}

struct FusedCase {
  int64_t rows, h, vocab;
  LogitMap map = {};
};

/// The fused loss against the composed one in double.
VerifyResult fused_case(Context& ctx, const std::string& what, FusedCase c) {
  VerifyCheck check("linear_cross_entropy", what, reduction_path(ctx));
  const size_t rows = static_cast<size_t>(c.rows), h = static_cast<size_t>(c.h),
               vocab = static_cast<size_t>(c.vocab);
  const std::vector<float> hidden = verify_uniform(rows * h, 81, 2.0f);
  const std::vector<float> weight = verify_uniform(vocab * h, 82, 0.5f);
  std::vector<int32_t> labels(rows);
  for (size_t i = 0; i < rows; ++i) labels[i] = static_cast<int32_t>(i * 40503u % vocab);
  const float scale = 0.5f;
  std::vector<double> losses(rows), grad_hidden(rows * h), grad_weight(vocab * h);
  cpu::linear_cross_entropy(to_double(hidden).data(), to_double(weight).data(), labels.data(),
                            static_cast<double>(scale), losses.data(), grad_hidden.data(),
                            grad_weight.data(), c.rows, c.h, c.vocab, c.map);

  const Tensor tx = ctx.make<float>({c.rows, c.h}, DType::kF32, hidden, "verify");
  const Tensor tw = ctx.make<float>({c.vocab, c.h}, DType::kF32, weight, "verify");
  const Tensor tl = ctx.make<int32_t>({c.rows}, DType::kI32, labels, "verify");
  const Tensor out = ctx.allocate({c.rows}, DType::kF32, "verify");
  const Tensor gx = ctx.allocate({c.rows, c.h}, DType::kF32, "verify");
  const Tensor gw = ctx.allocate_zeroed({c.vocab, c.h}, DType::kF32, "verify");
  Weight w = weight_from(tw, "verify");
  linear_cross_entropy(ctx, tx, w, tl, scale, out, gx, gw, c.map);

  // |hidden| <= 2, |weight| <= 1/2: a logit is a sum of h terms of at most 1.
  const double n = static_cast<double>(c.h);
  // With f16 operands each of a product's two is rounded to 11 bits.
  const double operand = ctx.compute() == ComputeType::kF16 ? 2.0 * 0x1p-11 : 0.0;
  // A map's factor is rounded, a cap lets no error grow and adds 36 roundings
  // (verify_attention.cc).
  const bool capped = c.map.soft_cap > 0;
  const double logit = (((n + 2.0) * u + operand) * n + 2.0 * u * n) * c.map.scale +
                       (capped ? 36.0 * u * std::min(c.map.soft_cap, n * c.map.scale) : 0.0);
  const double lse = logsumexp_bound(std::log(static_cast<double>(c.vocab)) + n, c.vocab);
  // Relative errors of a probability and, where there is a cap, absolute of its slope.
  const double p =
      2.0 * logit + lse + 16.0 * u + (capped ? 2.0 * logit / c.map.soft_cap + 16.0 * u : 0.0);
  check.compare("losses", ctx.read<float>(out), losses, [&](size_t) { return 2.0 * logit + lse; });
  // Rows of the gradient of the logits sum to 2 scale in size; their products are summed over V.
  check.compare("grad_hidden", ctx.read<float>(gx), grad_hidden, [&](size_t) {
    return scale * c.map.scale * 2.0 * 0.5 *
           (p + (std::sqrt(static_cast<double>(c.vocab)) + 4.0) * u + operand);
  });
  check.compare("grad_weight", ctx.read<float>(gw), grad_weight, [&](size_t) {
    return scale * c.map.scale * 2.0 * static_cast<double>(c.rows) *
           (p + (std::sqrt(static_cast<double>(c.rows)) + 4.0) * u + operand);
  });
  return check.result();
}

/// Losses do not depend on how many rows are taken at a time.
VerifyResult chunk_case(Context& ctx, const std::string& what) {
  VerifyCheck check("linear_cross_entropy", what, reduction_path(ctx));
  constexpr int64_t kRows = 160, kWidth = 48, kVocabulary = 9001;
  std::vector<int32_t> labels(kRows);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i * 40503u % 9001);
  const Tensor hidden = ctx.make<float>({kRows, kWidth}, DType::kF32,
                                        verify_uniform(kRows * kWidth, 83, 2.0f), "verify");
  const Tensor weight = ctx.make<float>({kVocabulary, kWidth}, DType::kF32,
                                        verify_uniform(kVocabulary * kWidth, 84, 0.5f), "verify");
  const Tensor device_labels = ctx.make<int32_t>({kRows}, DType::kI32, labels, "verify");
  const auto losses = [&](int64_t chunk) {
    const Tensor out = ctx.allocate({kRows}, DType::kF32, "verify");
    linear_cross_entropy(ctx, hidden, weight_from(weight, "verify"), device_labels, 1.0f, out, {},
                         {}, {}, chunk);
    return ctx.read<float>(out);
  };
  const std::vector<float> whole = losses(192);
  for (int64_t chunk : {64, 128}) {
    check.require(losses(chunk) == whole, "losses of chunks have the bits of the whole");
  }
  return check.result();
}

VerifyResult sum_case(Context& ctx, const std::string& what, int64_t n) {
  VerifyCheck check("sum", what, reduction_path(ctx));
  const std::vector<float> x = verify_decades(static_cast<size_t>(n), 91);
  double expected = 0.0, size = 0.0;
  for (float v : x) {
    expected += static_cast<double>(v);
    size += std::abs(static_cast<double>(v));
  }
  const Tensor tx = ctx.make<float>({n}, DType::kF32, x, "verify");
  const Tensor out = ctx.allocate({1}, DType::kF32, "verify");
  sum(ctx, tx, out, false);
  // Runs of 16; runs, vector, tree and partials.
  const double depth = 16.0 + static_cast<double>(n) / (1024.0 * 256.0 * 16.0) + 8.0 + 12.0 + 16.0;
  check.compare("sum", ctx.read<float>(out), std::vector<double>{expected},
                [&](size_t) { return depth * u * size; });
  sum(ctx, tx, out, true);
  check.compare("twice", ctx.read<float>(out), std::vector<double>{2.0 * expected},
                [&](size_t) { return 2.0 * (depth + 1.0) * u * size; });
  return check.result();
}

}  // namespace

void add_loss_cases(const Context&, VerifyLevel level, std::vector<VerifyCase>& cases) {
  std::vector<LossCase> shapes = {{1, 1, false},      {7, 31, false},    {33, 257, true},
                                  {6, 1000, false},   {2, 32000, false}, {3, 32000, true},
                                  {1, 128256, false}, {7, 151936, false}};
  std::vector<FusedCase> fused = {{5, 16, 31},
                                  {70, 33, 1000},
                                  {70, 33, 1000, {0.125, 0.0}},
                                  {70, 33, 1000, {1.0, 3.0}},
                                  {5, 16, 31, {0.5, 30.0}}};
  std::vector<int64_t> sums = {1, 33, 5003, 70000};
  if (level == VerifyLevel::kFull) {
    shapes.insert(shapes.end(), {{70001, 33, false},
                                 {5, 128256, true},
                                 {9, 151936, false},
                                 {8, 262144, false},
                                 {2, 262143, true}});
    fused.insert(fused.end(), {{66, 96, 49152}, {9, 64, 151936}});
    sums.push_back(16777219);
  }
  for (LossCase c : shapes) {
    const std::string what = fmt::format("rows {}, vocabulary {}, {}", c.rows, c.vocab,
                                         c.decades ? "1e-5..1e5" : "-10..10");
    cases.push_back(
        {"cross_entropy", what, [=](Context& ctx) { return cross_entropy_case(ctx, what, c); }});
  }
  for (FusedCase c : fused) {
    std::string what = fmt::format("rows {}, width {}, vocabulary {}", c.rows, c.h, c.vocab);
    if (!c.map.is_identity()) {
      what += fmt::format(", times {}, cap {}", c.map.scale, c.map.soft_cap);
    }
    cases.push_back(
        {"linear_cross_entropy", what, [=](Context& ctx) { return fused_case(ctx, what, c); }});
  }
  cases.push_back({"linear_cross_entropy", "chunks of 64, 128 and all rows",
                   [](Context& ctx) { return chunk_case(ctx, "chunks of 64, 128 and all rows"); }});
  for (int64_t n : sums) {
    const std::string what = fmt::format("n {}, 1e-5..1e5", n);
    cases.push_back({"sum", what, [=](Context& ctx) { return sum_case(ctx, what, n); }});
  }
}

}  // namespace wgrad::ops
