#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "cpu/optimizer.h"
#include "ops/optimizer.h"
#include "ops/verify_families.h"

namespace wgrad::ops {
namespace {

constexpr double u = kF32Rounding;

Tensor upload(Context& ctx, const std::vector<float>& values) {
  return ctx.make<float>({static_cast<int64_t>(values.size())}, DType::kF32, values, "verify");
}

/// The state after gradient_norm over these gradients.
std::vector<float> norm_state(Context& ctx, const std::vector<std::vector<float>>& values,
                              float loss, float max_norm) {
  std::vector<Tensor> grads;
  for (const auto& v : values) grads.push_back(upload(ctx, v));
  const Tensor tloss = upload(ctx, {loss});
  const Tensor state = upload(ctx, {7.0f, 7.0f, 7.0f, 7.0f});
  gradient_norm(ctx, grads, tloss, max_norm, state);
  return ctx.read<float>(state);
}

/// Norms over gradients with magnitudes 10^low .. 10^high, which may lie beyond the range where
/// squares fit f32.
VerifyResult norm_case(Context& ctx, const std::string& what, std::vector<size_t> sizes, double low,
                       double high) {
  VerifyCheck check("gradient_norm", what, reduction_path(ctx));
  std::vector<std::vector<float>> values;
  double squares = 0.0;
  for (size_t n : sizes) {
    values.push_back(verify_decades(n, 101 + n, low, high));
    for (float v : values.back()) squares += static_cast<double>(v) * static_cast<double>(v);
  }
  const double norm = std::sqrt(squares);
  // Half the relative error of the sum (runs of 16, then runs, vector, tree, partials), the root's
  // 2.5 ulp and the scaling.
  const double relative = (0.5 * (16.0 + 8.0 + 12.0 + 40.0) + 8.0) * u;
  std::vector<float> state = norm_state(ctx, values, 1.0f, 0.0f);
  check.measure(fmt::format("norm {:.9g}, expected {:.9g}", state[0], norm),
                std::abs(static_cast<double>(state[0]) - norm), relative * norm);
  check.require(state[1] == 1.0f && state[2] == 1.0f, "without a limit nothing is clipped");

  const double limit = static_cast<double>(static_cast<float>(norm * 0.25));
  state = norm_state(ctx, values, 1.0f, static_cast<float>(limit));
  const double factor = std::min(1.0, limit / (norm + 1e-6));
  check.measure(fmt::format("factor {:.9g}, expected {:.9g}", state[1], factor),
                std::abs(static_cast<double>(state[1]) - factor), (relative + 8.0 * u) * factor);
  return check.result();
}

VerifyResult non_finite_case(Context& ctx, const std::string& what) {
  VerifyCheck check("gradient_norm", what, reduction_path(ctx));
  const float infinity = std::bit_cast<float>(0x7f800000u);
  const float nan = std::bit_cast<float>(0x7fc00001u);
  const auto skips = [&](const std::vector<float>& state) {
    return state[0] == 3.4e38f && state[1] == 0.0f && state[2] == 0.0f;
  };
  const std::vector<float> good = verify_uniform(5003, 111);
  for (float bad : {infinity, -infinity, nan}) {
    std::vector<float> one = good;
    one[4999] = bad;
    check.require(skips(norm_state(ctx, {good, one}, 1.0f, 1.0f)),
                  "a gradient that is not finite is seen");
    check.require(skips(norm_state(ctx, {good}, bad, 1.0f)), "a loss that is not finite is seen");
  }
  check.require(!skips(norm_state(ctx, {good}, 3e38f, 1.0f)), "a large loss is finite");

  // A skipped step leaves everything as it was.
  const Tensor state = upload(ctx, {3.4e38f, 0.0f, 0.0f, 0.0f});
  std::vector<float> poison(good.size(), nan);
  const Tensor p = upload(ctx, good), m = upload(ctx, good), v = upload(ctx, good);
  AdamWStep step;
  step.learning_rate = 0.1;
  step.weight_decay = 0.1;
  adamw_step(ctx, step, state, p, upload(ctx, poison), m, v);
  check.require(
      ctx.read<float>(p) == good && ctx.read<float>(m) == good && ctx.read<float>(v) == good,
      "a skipped step changes nothing");
  return check.result();
}

cpu::AdamWStep on_cpu(const AdamWStep& s) {
  cpu::AdamWStep c;
  c.learning_rate = s.learning_rate;
  c.beta1 = s.beta1;
  c.beta2 = s.beta2;
  c.eps = s.eps;
  c.weight_decay = s.weight_decay;
  c.bias_correction1 = s.bias_correction1;
  c.bias_correction2 = s.bias_correction2;
  return c;
}

AdamWStep step_at(int t) {
  AdamWStep s;
  s.learning_rate = 1e-3;
  s.weight_decay = 0.01;
  s.bias_correction1 = 1.0 - std::pow(s.beta1, t);
  s.bias_correction2 = 1.0 - std::pow(s.beta2, t);
  return s;
}

VerifyResult one_step_case(Context& ctx, const std::string& what, size_t n) {
  VerifyCheck check("adamw_step", what, "core");
  const std::vector<float> p = verify_decades(n, 121), g = verify_decades(n, 122),
                           m = verify_decades(n, 123);
  std::vector<float> v = verify_decades(n, 124);
  for (float& x : v) x = std::abs(x);
  const float factor = 0.37f;
  const AdamWStep step = step_at(10);
  std::vector<double> p64 = to_double(p), m64 = to_double(m), v64 = to_double(v);
  cpu::adamw_step(p64.data(), to_double(g).data(), m64.data(), v64.data(), static_cast<int64_t>(n),
                  on_cpu(step), static_cast<double>(factor));
  const Tensor tp = upload(ctx, p), tm = upload(ctx, m), tv = upload(ctx, v);
  adamw_step(ctx, step, upload(ctx, {1.0f, factor, 1.0f, 0.0f}), tp, upload(ctx, g), tm, tv);

  // Each parameter of the step is rounded once besides the arithmetic.
  const auto m_size = [&](size_t i) {
    return 0.9 * std::abs(static_cast<double>(m[i])) +
           0.1 * factor * std::abs(static_cast<double>(g[i]));
  };
  check.compare("m", ctx.read<float>(tm), m64, [&](size_t i) { return 5.0 * u * m_size(i); });
  check.compare("v", ctx.read<float>(tv), v64, [&](size_t i) { return 7.0 * u * v64[i]; });
  check.compare("p", ctx.read<float>(tp), p64, [&](size_t i) {
    const double denominator = std::sqrt(v64[i] / step.bias_correction2) + step.eps;
    const double direction = m_size(i) / step.bias_correction1 / denominator;
    const double size = std::abs(static_cast<double>(p[i]));
    return u * (step.learning_rate * 24.0 * direction + 2.0 * size + std::abs(p64[i]));
  });
  return check.result();
}

/// A thousand steps follow PyTorch's in f32, as the CPU's do: the root mean square of the
/// difference, relative to that of the parameters. The reference is of the same type because the
/// roundings of p over many steps are alike where the arithmetic is.
VerifyResult many_steps_case(Context& ctx, const std::string& what) {
  VerifyCheck check("adamw_step", what, "core");
  const size_t n = 1027;
  const std::vector<float> start = verify_uniform(n, 131), zero(n, 0.0f);
  std::vector<float> p32 = start, m32 = zero, v32 = zero;
  const Tensor p = upload(ctx, start), m = upload(ctx, zero), v = upload(ctx, zero);
  const Tensor state = upload(ctx, {1.0f, 1.0f, 1.0f, 0.0f}), tg = upload(ctx, zero);
  for (int t = 1; t <= 1000; ++t) {
    const std::vector<float> g = verify_uniform(n, 1000 + static_cast<uint64_t>(t), 0.1f);
    const AdamWStep step = step_at(t);
    ctx.upload<float>(tg, g);
    adamw_step(ctx, step, state, p, tg, m, v);
    cpu::adamw_step(p32.data(), g.data(), m32.data(), v32.data(), static_cast<int64_t>(n),
                    on_cpu(step));
  }
  const std::vector<float> seen = ctx.read<float>(p);
  double error = 0.0, size = 0.0;
  for (size_t i = 0; i < n; ++i) {
    const double expected = p32[i];
    error += std::pow(static_cast<double>(seen[i]) - expected, 2);
    size += expected * expected;
  }
  check.measure("relative difference of the parameters", std::sqrt(error / size), 1e-6);
  return check.result();
}

}  // namespace

void add_optimizer_cases(const Context&, VerifyLevel level, std::vector<VerifyCase>& cases) {
  std::vector<std::vector<size_t>> norms = {{1}, {33, 4, 257}, {70001, 1024}};
  std::vector<size_t> steps = {1, 31, 260, 5003};
  if (level == VerifyLevel::kFull) {
    norms.push_back({16777219, 70000, 5});
    steps.insert(steps.end(), {16777219});
  }
  for (const auto& sizes : norms) {
    for (double low : {-5.0, -30.0, 25.0}) {
      const std::string what =
          fmt::format("tensors {}, first {}, 1e{}..1e{}", sizes.size(), sizes[0], low, low + 10.0);
      cases.push_back({"gradient_norm", what,
                       [=](Context& ctx) { return norm_case(ctx, what, sizes, low, low + 10.0); }});
    }
  }
  cases.push_back({"gradient_norm", "not finite",
                   [](Context& ctx) { return non_finite_case(ctx, "not finite"); }});
  for (size_t n : steps) {
    const std::string what = fmt::format("n {}, 1e-5..1e5", n);
    cases.push_back(
        {"adamw_step", what, [=](Context& ctx) { return one_step_case(ctx, what, n); }});
  }
  cases.push_back({"adamw_step", "1000 steps",
                   [](Context& ctx) { return many_steps_case(ctx, "1000 steps"); }});
}

}  // namespace wgrad::ops
