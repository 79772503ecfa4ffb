#include "ops/verify_exported.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/activation.h"
#include "cpu/cross_entropy.h"
#include "cpu/matmul.h"
#include "cpu/nf4.h"
#include "cpu/optimizer.h"
#include "cpu/rms_norm.h"
#include "cpu/softmax.h"

namespace wgrad::ops {
namespace {

constexpr double kLimit = 1e-4;  // the contract of every exported kernel

std::vector<uint32_t> words(const std::vector<float>& values) {
  std::vector<uint32_t> out(values.size());
  std::memcpy(out.data(), values.data(), values.size() * 4);
  return out;
}

std::vector<float> floats(const std::vector<uint32_t>& bits) {
  std::vector<float> out(bits.size());
  std::memcpy(out.data(), bits.data(), bits.size() * 4);
  return out;
}

void near(VerifyCheck& check, const std::vector<uint32_t>& seen,
          const std::vector<double>& expected, double limit, std::string_view what) {
  check.compare(what, floats(seen), expected, [&](size_t) { return limit; });
}

void silu_backward(VerifyCheck& check, const ExportedRun& run) {
  for (size_t n : {1, 31, 257, 70001}) {
    std::vector<float> x = verify_uniform(n, 1, 100.0f);
    if (n > 4) {
      x[0] = 3e38f;
      x[1] = -3e38f;
      x[2] = 0.0f;
    }
    const std::vector<float> dy = verify_uniform(n, 2);
    std::vector<double> expected(n);
    cpu::silu_backward(to_double(x).data(), to_double(dy).data(), expected.data(),
                       static_cast<int64_t>(n));
    ExportedBuffers b{{"x", words(x)}, {"dy", words(dy)}, {"dx", std::vector<uint32_t>(n, 7)}};
    run("silu_backward", b, {{"n", n}});
    // Two roundings of 1, and exp()'s error where the slope bends.
    near(check, b.at("dx"), expected, std::min(kLimit, 64.0 * kF32Rounding), "dx");
  }
}

void past_65535_workgroups(VerifyCheck& check, const ExportedRun& run) {
  const size_t n = 65535 * 256 + 257;
  std::vector<uint32_t> packed((n + 7) / 8);
  for (size_t i = 0; i < packed.size(); ++i) packed[i] = static_cast<uint32_t>(i) * 2654435761u;
  const std::vector<float> scales = verify_uniform((n + 63) / 64, 3);
  ExportedBuffers b{
      {"packed", packed}, {"scales", words(scales)}, {"out", std::vector<uint32_t>(n, 7)}};
  run("nf4_dequant", b, {{"n", n}, {"block_size", 64}});
  const std::vector<float> seen = floats(b.at("out"));
  for (size_t i = 0; i < n; i += i + 300 < n ? 4099 : 1) {
    const uint32_t code = packed[i / 8] >> (4 * (i % 8)) & 15;
    check.require(seen[i] == cpu::kNf4Table[code] * scales[i / 64], "each element is written");
  }
}

void gemm_backward(VerifyCheck& check, const ExportedRun& run) {
  struct Sizes {
    int64_t m, k, n;
  };
  for (Sizes s : {Sizes{97, 101, 103},
                  {1, 65, 3},
                  {65, 1, 129},
                  {3, 5, 1},
                  {64, 64, 64},
                  {33, 2, 2000},
                  {1, 1, 1}}) {
    const auto a = verify_uniform(static_cast<size_t>(s.m * s.k), 4);
    const auto w = verify_uniform(static_cast<size_t>(s.k * s.n), 5);
    const auto dc = verify_uniform(static_cast<size_t>(s.m * s.n), 6);
    const ExportedFields fields = {{"M", static_cast<double>(s.m)},
                                   {"K", static_cast<double>(s.k)},
                                   {"N", static_cast<double>(s.n)}};
    std::vector<double> da(a.size()), db(w.size());
    cpu::matmul(cpu::MatmulOp::kNT, s.m, s.k, s.n, to_double(dc).data(), s.n, to_double(w).data(),
                s.n, da.data(), s.k);
    cpu::matmul(cpu::MatmulOp::kTN, s.k, s.n, s.m, to_double(a).data(), s.k, to_double(dc).data(),
                s.n, db.data(), s.n);
    ExportedBuffers left{
        {"dC", words(dc)}, {"B", words(w)}, {"dA", std::vector<uint32_t>(a.size(), 7)}};
    run("gemm_backward_a", left, fields);
    // Terms below 1; sixteen at a time, then the chunks.
    const auto bound = [](int64_t length) {
      return std::min(kLimit, (16.0 + static_cast<double>(length) / 16.0 + 2.0) * kF32Rounding *
                                  static_cast<double>(length));
    };
    near(check, left.at("dA"), da, bound(s.n), "dA");
    ExportedBuffers right{
        {"A", words(a)}, {"dC", words(dc)}, {"dB", std::vector<uint32_t>(w.size(), 7)}};
    run("gemm_backward_b", right, fields);
    near(check, right.at("dB"), db, bound(s.m), "dB");
  }
}

void rms_norm_backward(VerifyCheck& check, const ExportedRun& run) {
  for (auto [rows, n] :
       {std::pair<int64_t, int64_t>{1, 1}, {5, 33}, {3, 5000}, {130, 64}, {70001, 3}}) {
    const size_t count = static_cast<size_t>(rows * n), width = static_cast<size_t>(n);
    const auto x = verify_uniform(count, 7, 3.0f), g = verify_uniform(width, 8),
               dy = verify_uniform(count, 9), before = verify_uniform(width, 10);
    const double eps = static_cast<double>(1e-5f);
    std::vector<double> y(count), inverse(static_cast<size_t>(rows)), dx(count),
        dg = to_double(before);
    cpu::rms_norm_forward(to_double(x).data(), to_double(g).data(), y.data(), inverse.data(), rows,
                          n, eps);
    cpu::rms_norm_backward(to_double(x).data(), to_double(g).data(), inverse.data(),
                           to_double(dy).data(), dx.data(), dg.data(), rows, n, false);
    const ExportedBuffers start{{"x", words(x)},
                                {"g", words(g)},
                                {"dy", words(dy)},
                                {"dx", std::vector<uint32_t>(count, 7)},
                                {"dg", words(before)}};
    const ExportedFields fields = {{"num_rows", static_cast<double>(rows)},
                                   {"hidden_dim", static_cast<double>(n)},
                                   {"eps", 1e-5},
                                   {"pad", 0}};
    ExportedBuffers b = start;
    run("rms_norm_backward", b, fields);
    // A gradient is inverse times terms of about 1; rows of one element may have a large inverse.
    check.compare("dx", floats(b.at("dx")), dx, [&](size_t i) {
      return std::min(kLimit, 64.0 * kF32Rounding) * std::max(1.0, inverse[i / width]);
    });
    // Runs of 32 rows, then the runs of a stripe: |dy x / r| <= sqrt(n).
    const double depth = 32.0 + static_cast<double>(rows) / 256.0 + 16.0;
    near(check, b.at("dg"), dg,
         std::min(
             kLimit * std::max(1.0, std::sqrt(static_cast<double>(rows))),
             depth * kF32Rounding * static_cast<double>(rows) * std::sqrt(static_cast<double>(n)) +
                 kF32Rounding),
         "dg");
    ExportedBuffers again = start;
    run("rms_norm_backward", again, fields);
    check.require(again == b, "a second run has the same bits");
  }
}

void rope_backward(VerifyCheck& check, const ExportedRun& run) {
  struct Sizes {
    uint32_t heads, dim, length;
    double theta;
  };
  for (Sizes s : {Sizes{1, 2, 1, 10000.0},
                  {3, 6, 33, 10000.0},
                  {1, 4, 131073, 500000.0},
                  {2, 128, 70, 1e6},
                  {1, 80, 300, 10000.0},
                  {1, 2, 5, 1.0},
                  {1, 16, 3001, 2.0}}) {
    const float theta_log2 = static_cast<float>(std::log2(s.theta));
    const size_t count = static_cast<size_t>(s.heads) * s.dim * s.length;
    const std::vector<float> dy = verify_uniform(count, 11);
    std::vector<double> expected(count);
    for (size_t at = 0; at < count; at += 2) {
      const size_t i = at % s.dim / 2, p = at / s.dim % s.length;
      const double exponent =
          2.0 * static_cast<double>(i) * static_cast<double>(theta_log2) / s.dim;
      const double angle = static_cast<double>(p) * std::exp2(-exponent);
      const double c = std::cos(angle), sn = std::sin(angle);
      expected[at] = dy[at] * c + dy[at + 1] * sn;
      expected[at + 1] = dy[at + 1] * c - dy[at] * sn;
    }
    ExportedBuffers b{{"dy", words(dy)}, {"dx", std::vector<uint32_t>(count, 7)}};
    run("rope_backward", b,
        {{"num_heads", s.heads},
         {"head_dim", s.dim},
         {"seq_len", s.length},
         {"theta_log2", static_cast<double>(theta_log2)}});
    // The angle within a turn to 3 roundings, the polynomials to 3, two products and a sum.
    near(check, b.at("dx"), expected, 16.0 * kF32Rounding, "dx");
  }
}

void softmax_backward(VerifyCheck& check, const ExportedRun& run) {
  for (auto [rows, n] : {std::pair<int64_t, int64_t>{1, 1}, {7, 31}, {3, 5003}, {66000, 3}}) {
    const size_t count = static_cast<size_t>(rows * n);
    const auto x = verify_uniform(count, 12, 5.0f), dy = verify_uniform(count, 13);
    std::vector<double> exact(count), dx(count);
    cpu::softmax_forward(to_double(x).data(), exact.data(), rows, n);
    const std::vector<float> y(exact.begin(), exact.end());
    cpu::softmax_backward(to_double(y).data(), to_double(dy).data(), dx.data(), rows, n);
    ExportedBuffers b{{"y", words(y)}, {"dy", words(dy)}, {"dx", std::vector<uint32_t>(count, 7)}};
    run("softmax_backward", b,
        {{"num_rows", static_cast<double>(rows)}, {"row_len", static_cast<double>(n)}});
    near(check, b.at("dx"), dx, 64.0 * kF32Rounding, "dx");
  }
}

void cross_entropy(VerifyCheck& check, const ExportedRun& run) {
  struct Sizes {
    int64_t rows, vocab;
    uint32_t start, end;
  };
  for (Sizes s : {Sizes{1, 1, 0, 1},
                  {9, 31, 2, 8},
                  {4, 1000, 0, 4},
                  {5, 32000, 1, 5},
                  {2, 128256, 0, 2},
                  {2, 151936, 0, 2},
                  {66000, 3, 5, 65990}}) {
    const size_t rows = static_cast<size_t>(s.rows), vocab = static_cast<size_t>(s.vocab);
    const auto logits = verify_uniform(rows * vocab, 14, 10.0f);
    std::vector<int32_t> labels(rows);
    for (size_t r = 0; r < rows; ++r) labels[r] = static_cast<int32_t>(r * 7919 % vocab);
    if (rows > 3) {
      labels[1] = -100;
      labels[2] = static_cast<int32_t>(vocab);
    }
    std::vector<int32_t> counted = labels;
    for (size_t r = 0; r < rows; ++r) {
      if (r < s.start || r >= s.end) counted[r] = -100;
    }
    const float scale = 0.25f;
    std::vector<double> gradient = to_double(logits), losses(rows), lse(rows);
    cpu::cross_entropy_forward(gradient.data(), counted.data(), losses.data(), lse.data(), s.rows,
                               s.vocab);
    cpu::cross_entropy_backward(gradient.data(), counted.data(), lse.data(), s.rows, s.vocab,
                                static_cast<double>(scale));
    const ExportedFields fields = {{"seq_len", static_cast<double>(s.rows)},
                                   {"vocab_size", static_cast<double>(s.vocab)},
                                   {"loss_start", s.start},
                                   {"loss_end", s.end},
                                   {"scale", static_cast<double>(scale)}};
    std::vector<uint32_t> label_words(rows);
    std::memcpy(label_words.data(), labels.data(), rows * 4);
    ExportedBuffers b{{"logits", words(logits)},
                      {"labels", label_words},
                      {"losses", std::vector<uint32_t>(rows, 7)},
                      {"logsumexp", std::vector<uint32_t>(rows, 7)}};
    run("cross_entropy_forward", b, fields);
    near(check, b.at("losses"), losses, 1e-5, "losses");
    near(check, b.at("logsumexp"), lse, 1e-5, "logsumexp");
    run("cross_entropy_backward", b, fields);
    near(check, b.at("logits"), gradient, 1e-5, "gradient");
    const std::vector<float> seen = floats(b.at("logits"));
    for (size_t r = 0; r < rows; ++r) {
      double sum = 0.0;
      for (size_t v = 0; v < vocab; ++v) {
        const float g = seen[r * vocab + v];
        check.require(std::abs(g) <= scale, "each element is within the scale");
        check.require(g == 0.0f || (counted[r] >= 0 && counted[r] < s.vocab),
                      "a row that does not count has gradient exactly 0");
        sum += static_cast<double>(g);
      }
      check.measure("sum of a gradient row", std::abs(sum), static_cast<double>(scale) * 1e-5);
    }
  }
}

/// The CPU's f32 steps follow PyTorch's (tests/cpu/optimizer_test.cc). Roundings of p over many
/// steps are alike where the arithmetic is, so the reference has the same type.
void adamw_steps(VerifyCheck& check, const ExportedRun& run) {
  const size_t n = 300;
  const std::vector<float> start = verify_uniform(n, 15);
  std::vector<float> p = start, m(n), v(n);
  ExportedBuffers b{{"p", words(start)},
                    {"g", std::vector<uint32_t>(n)},
                    {"m", std::vector<uint32_t>(n)},
                    {"v", std::vector<uint32_t>(n)}};
  for (int t = 1; t <= 1000; ++t) {
    const std::vector<float> g = verify_uniform(n, 1000 + static_cast<uint64_t>(t), 0.1f);
    cpu::AdamWStep step;
    step.learning_rate = 1e-3;
    step.weight_decay = 0.01;
    step.bias_correction1 = 1.0 - std::pow(0.9, t);
    step.bias_correction2 = 1.0 - std::pow(0.999, t);
    cpu::adamw_step(p.data(), g.data(), m.data(), v.data(), static_cast<int64_t>(n), step);
    b.at("g") = words(g);
    run("adamw_step", b,
        {{"n", n},
         {"lr", 1e-3},
         {"beta1", 0.9},
         {"beta2", 0.999},
         {"eps", 1e-8},
         {"weight_decay", 0.01},
         {"bias_correction1", step.bias_correction1},
         {"bias_correction2", step.bias_correction2}});
  }
  const std::vector<float> seen = floats(b.at("p"));
  double error = 0.0, size = 0.0;
  for (size_t i = 0; i < n; ++i) {
    error += std::pow(static_cast<double>(seen[i]) - static_cast<double>(p[i]), 2);
    size += static_cast<double>(p[i]) * static_cast<double>(p[i]);
  }
  check.measure("relative difference of the parameters", std::sqrt(error / size), 1e-6);
}

void adamw_step(VerifyCheck& check, const ExportedRun& run) {
  const size_t n = 70001;
  const std::vector<float> p = verify_uniform(n, 17), g = verify_uniform(n, 18),
                           m = verify_uniform(n, 19);
  std::vector<float> v = verify_uniform(n, 20);
  for (float& x : v) x = std::abs(x) + 1e-3f;
  std::vector<double> p64 = to_double(p), m64 = to_double(m), v64 = to_double(v);
  cpu::AdamWStep step;
  step.learning_rate = 1e-2;
  step.weight_decay = 0.1;
  step.bias_correction1 = 1.0 - std::pow(0.9, 7);
  step.bias_correction2 = 1.0 - std::pow(0.999, 7);
  cpu::adamw_step(p64.data(), to_double(g).data(), m64.data(), v64.data(), static_cast<int64_t>(n),
                  step);
  ExportedBuffers b{{"p", words(p)}, {"g", words(g)}, {"m", words(m)}, {"v", words(v)}};
  run("adamw_step", b,
      {{"n", n},
       {"lr", 1e-2},
       {"beta1", 0.9},
       {"beta2", 0.999},
       {"eps", 1e-8},
       {"weight_decay", 0.1},
       {"bias_correction1", step.bias_correction1},
       {"bias_correction2", step.bias_correction2}});
  // All values are of about 1 (the direction below 3).
  near(check, b.at("m"), m64, 8.0 * kF32Rounding, "m");
  near(check, b.at("v"), v64, 8.0 * kF32Rounding, "v");
  near(check, b.at("p"), p64, 8.0 * kF32Rounding, "p");
}

void nf4_dequant(VerifyCheck& check, const ExportedRun& run) {
  for (size_t n : {1, 7, 64, 1000}) {
    std::vector<uint32_t> packed((n + 7) / 8);
    for (size_t i = 0; i < packed.size(); ++i)
      packed[i] = static_cast<uint32_t>(i + 3) * 2654435761u;
    const std::vector<float> scales = verify_uniform((n + 63) / 64, 16, 2.0f);
    std::vector<double> expected(n);
    for (size_t i = 0; i < n; ++i) {
      const uint32_t byte = packed[i / 8] >> (8 * (i % 8 / 2)) & 255;
      const uint32_t code = i % 2 == 0 ? byte & 15 : byte >> 4;
      expected[i] = static_cast<double>(cpu::kNf4Table[code]) * static_cast<double>(scales[i / 64]);
    }
    ExportedBuffers b{
        {"packed", packed}, {"scales", words(scales)}, {"out", std::vector<uint32_t>(n, 7)}};
    run("nf4_dequant", b, {{"n", n}, {"block_size", 64}});
    near(check, b.at("out"), expected, 2.0 * kF32Rounding, "out");
  }
}

}  // namespace

const std::vector<ExportedCase>& exported_cases() {
  static const std::vector<ExportedCase> cases = {
      {"silu_backward", "n 1 to 70001", silu_backward},
      {"nf4_dequant", "past 65535 workgroups", past_65535_workgroups},
      {"gemm_backward_a, gemm_backward_b", "odd sizes", gemm_backward},
      {"rms_norm_backward", "rows 1 to 70001, the same bits twice", rms_norm_backward},
      {"rope_backward", "to position 131072", rope_backward},
      {"softmax_backward", "rows 1 to 66000", softmax_backward},
      {"cross_entropy_forward, cross_entropy_backward", "vocabulary 3 to 151936", cross_entropy},
      {"adamw_step", "1000 steps", adamw_steps},
      {"adamw_step", "one step", adamw_step},
      {"nf4_dequant", "n 1 to 1000", nf4_dequant},
  };
  return cases;
}

VerifyResult run_exported(const ExportedCase& c, const ExportedRun& run) {
  VerifyCheck check(fmt::format("exported {}", c.kernels), std::string(c.what), "core");
  c.check(check, run);
  return check.result();
}

}  // namespace wgrad::ops
