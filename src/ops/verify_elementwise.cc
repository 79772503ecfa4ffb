#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cpu/activation.h"
#include "cpu/softmax.h"
#include "ops/elementwise.h"
#include "ops/verify_activation.h"
#include "ops/verify_families.h"

namespace wgrad::ops {
namespace {

constexpr double u = kF32Rounding;
/// Below this an f32 result may be flushed to zero.
constexpr double kFlushed = 2e-38;

Tensor upload(Context& ctx, const std::vector<float>& values) {
  return ctx.make<float>({static_cast<int64_t>(values.size())}, DType::kF32, values, "verify");
}

/// Gate values: ten decades, with the activation's bend well covered.
std::vector<float> gates(size_t n, uint64_t seed) {
  std::vector<float> values = verify_decades(n, seed);
  const std::vector<float> bend = verify_uniform(n, seed + 1, 100.0f);
  for (size_t i = 0; i < n; i += 2) values[i] = bend[i];
  if (n > 8) {
    values[3] = 3e38f;
    values[5] = -3e38f;
    values[7] = 0.0f;
  }
  return values;
}

VerifyResult silu_case(Context& ctx, const std::string& what, size_t n) {
  VerifyCheck check("silu", what, "core");
  const std::vector<float> x = gates(n, 11), grad = verify_decades(n, 12);
  std::vector<double> y(n), grad_x(n);
  cpu::silu_forward(to_double(x).data(), y.data(), static_cast<int64_t>(n));
  cpu::silu_backward(to_double(x).data(), to_double(grad).data(), grad_x.data(),
                     static_cast<int64_t>(n));
  const Tensor tx = upload(ctx, x), tg = upload(ctx, grad);
  const Tensor out = ctx.allocate(tx.shape(), DType::kF32, "verify");
  silu_forward(ctx, tx, out);
  check.compare("y", ctx.read<float>(out), y, [&](size_t i) {
    return activation_bound(Activation::kSilu, static_cast<double>(x[i]));
  });
  silu_backward(ctx, tx, tg, out);
  check.compare("grad_x", ctx.read<float>(out), grad_x, [&](size_t i) {
    return std::abs(static_cast<double>(grad[i])) *
               activation_slope_bound(Activation::kSilu, static_cast<double>(x[i])) +
           kFlushed;
  });
  return check.result();
}

VerifyResult gated_case(Context& ctx, const std::string& what, Activation activation, size_t n) {
  VerifyCheck check("gated " + std::string(activation_name(activation)), what, "core");
  std::vector<float> gate = gates(n, 21);
  for (float& g : gate) g = std::clamp(g, -1e5f, 1e5f);
  const std::vector<float> up = verify_decades(n, 22), grad = verify_decades(n, 23);
  std::vector<double> y(n), grad_gate(n), grad_up(n);
  cpu::gated_forward(activation, to_double(gate).data(), to_double(up).data(), y.data(),
                     static_cast<int64_t>(n));
  cpu::gated_backward(activation, to_double(gate).data(), to_double(up).data(),
                      to_double(grad).data(), grad_gate.data(), grad_up.data(),
                      static_cast<int64_t>(n));
  const Tensor tg = upload(ctx, gate), tu = upload(ctx, up), td = upload(ctx, grad);
  const Tensor out = ctx.allocate(tg.shape(), DType::kF32, "verify");
  const Tensor out_up = ctx.allocate(tg.shape(), DType::kF32, "verify");
  gated_forward(ctx, activation, tg, tu, out);
  const auto size = [](const std::vector<float>& v, size_t i) {
    return std::abs(static_cast<double>(v[i]));
  };
  check.compare("y", ctx.read<float>(out), y, [&](size_t i) {
    return size(up, i) * activation_bound(activation, static_cast<double>(gate[i])) +
           2 * u * std::abs(y[i]) + kFlushed;
  });
  gated_backward(ctx, activation, tg, tu, td, out, out_up);
  check.compare("grad_gate", ctx.read<float>(out), grad_gate, [&](size_t i) {
    return size(up, i) * size(grad, i) *
               activation_slope_bound(activation, static_cast<double>(gate[i])) +
           kFlushed;
  });
  check.compare("grad_up", ctx.read<float>(out_up), grad_up, [&](size_t i) {
    return size(grad, i) * activation_bound(activation, static_cast<double>(gate[i])) +
           2 * u * std::abs(grad_up[i]) + kFlushed;
  });
  return check.result();
}

VerifyResult add_scale_case(Context& ctx, const std::string& what, size_t n) {
  VerifyCheck check("add, scale, copy", what, "core");
  const std::vector<float> x = verify_decades(n, 31), y = verify_decades(n, 32);
  std::vector<double> sum(n), scaled(n), scaled_sum(n);
  for (size_t i = 0; i < n; ++i) {
    sum[i] = static_cast<double>(x[i]) + static_cast<double>(y[i]);
    scaled[i] = static_cast<double>(x[i]) * static_cast<double>(0.3f);
    scaled_sum[i] = scaled[i] + static_cast<double>(y[i]);
  }
  const Tensor tx = upload(ctx, x), ty = upload(ctx, y);
  add(ctx, tx, ty);
  check.compare("y", ctx.read<float>(ty), sum, [&](size_t i) { return u * std::abs(sum[i]); });
  const auto scaled_bound = [&](size_t i) { return u * std::abs(scaled[i]); };
  scaled_copy(ctx, tx, 0.3f, ty);
  check.compare("scaled copy", ctx.read<float>(ty), scaled, scaled_bound);
  const Tensor residual = upload(ctx, y);
  add_scaled(ctx, tx, 0.3f, residual);
  check.compare("scaled sum", ctx.read<float>(residual), scaled_sum,
                [&](size_t i) { return scaled_bound(i) + u * std::abs(scaled_sum[i]); });
  copy(ctx, tx, ty);
  check.require(ctx.read<float>(ty) == x, "a copy has the same bits");
  scale(ctx, tx, 0.3f);
  check.compare("x", ctx.read<float>(tx), scaled, scaled_bound);
  fill_zero(ctx, tx);
  check.require(ctx.read<float>(tx) == std::vector<float>(n, 0.0f), "fill_zero leaves zeros");
  return check.result();
}

VerifyResult softmax_case(Context& ctx, const std::string& what, int64_t rows, int64_t n) {
  VerifyCheck check("softmax", what, reduction_path(ctx));
  const size_t count = static_cast<size_t>(rows * n), width = static_cast<size_t>(n);
  std::vector<float> x = verify_uniform(count, 41, 10.0f);
  const std::vector<float> wide = verify_decades(count, 42);
  for (size_t i = 0; i < count; i += 3) x[i] = wide[i];
  const std::vector<float> grad = verify_decades(count, 43);
  std::vector<double> y(count), grad_x(count);
  cpu::softmax_forward(to_double(x).data(), y.data(), rows, n);
  const Tensor tx = ctx.make<float>({rows, n}, DType::kF32, x, "verify");
  const Tensor ty = ctx.allocate({rows, n}, DType::kF32, "verify");
  softmax_forward(ctx, tx, ty);
  // A lane's own sum, a vector, the tree.
  const double depth = static_cast<double>(n) / 256.0 + 12.0;
  std::vector<double> peak(static_cast<size_t>(rows), -4e38);
  for (size_t i = 0; i < count; ++i) {
    peak[i / width] = std::max(peak[i / width], static_cast<double>(x[i]));
  }
  const std::vector<float> seen = ctx.read<float>(ty);
  check.compare("y", seen, y, [&](size_t i) {
    const double down = peak[i / width] - static_cast<double>(x[i]);
    // The error of exp() of the row's other terms averages below 6 + 6 ln n of these.
    const double own = 16.0 + 6.0 * std::min(down, 90.0) + depth;
    return (own + 6.0 + 6.0 * std::log(static_cast<double>(n))) * u * y[i] + kFlushed;
  });
  const std::vector<double> seen64 = to_double(seen);
  cpu::softmax_backward(seen64.data(), to_double(grad).data(), grad_x.data(), rows, n);
  const Tensor tg = ctx.make<float>({rows, n}, DType::kF32, grad, "verify");
  softmax_backward(ctx, ty, tg, tx);
  std::vector<double> total(static_cast<size_t>(rows));
  for (size_t i = 0; i < count; ++i) {
    total[i / width] += std::abs(seen64[i] * static_cast<double>(grad[i]));
  }
  check.compare("grad_x", ctx.read<float>(tx), grad_x, [&](size_t i) {
    return seen64[i] *
               (2.0 * std::abs(static_cast<double>(grad[i])) + (depth + 4.0) * total[i / width]) *
               u +
           kFlushed;
  });
  return check.result();
}

}  // namespace

void add_elementwise_cases(const Context&, VerifyLevel level, std::vector<VerifyCase>& cases) {
  std::vector<size_t> sizes = {1, 31, 33, 257, 1028, 70001};
  std::vector<std::pair<int64_t, int64_t>> rows = {
      {1, 1}, {3, 31}, {33, 257}, {2, 1000}, {2, 5003}};
  if (level == VerifyLevel::kFull) {
    sizes.insert(sizes.end(), {2, 255, 256, 16777219});
    rows.insert(rows.end(), {{66000, 33}, {5, 151936}, {129, 1024}});
  }
  for (size_t n : sizes) {
    const std::string what = fmt::format("n {}, 1e-5..1e5", n);
    cases.push_back({"silu", what, [=](Context& ctx) { return silu_case(ctx, what, n); }});
    for (const Activation activation : kActivations) {
      cases.push_back({"gated " + std::string(activation_name(activation)), what,
                       [=](Context& ctx) { return gated_case(ctx, what, activation, n); }});
    }
    cases.push_back(
        {"add, scale, copy", what, [=](Context& ctx) { return add_scale_case(ctx, what, n); }});
  }
  for (const auto& [r, n] : rows) {
    const std::string what = fmt::format("rows {}, n {}", r, n);
    cases.push_back({"softmax", what,
                     [=, r = r, n = n](Context& ctx) { return softmax_case(ctx, what, r, n); }});
  }
}

}  // namespace wgrad::ops
