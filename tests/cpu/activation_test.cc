#include "cpu/activation.h"

#include <limits>

#include "testing.h"

namespace wgrad::cpu {
namespace {

/// Small and large, both signs, zero, and where the exponential under- and overflows.
std::vector<double> telling_values() {
  std::vector<double> x = {0.0,  -0.0,  1.0,  -1.0,  20.0,  -20.0,
                           87.0, -87.0, 88.5, -88.5, 104.0, -104.0};
  const std::vector<double> more = ten_decades(500, 1);
  x.insert(x.end(), more.begin(), more.end());
  for (int i = -400; i <= 400; ++i) x.push_back(i * 0.25);
  return rounded_to_f32(x);
}

TEST(Silu, BackwardIsTheDerivativeOfForward) {
  for (double spread : {0.1, 3.0, 30.0}) {
    const int64_t n = 33;
    const std::vector<double> values = random_values(n, 1, spread);
    const std::vector<double> grad_y = random_values(n, 2);
    std::vector<double> grad_x(values.size());
    silu_backward(values.data(), grad_y.data(), grad_x.data(), n);
    std::vector<Complex> x = converted<Complex>(values);
    std::vector<Complex> y(x.size());
    expect_complex_step(
        grad_x, x,
        [&] {
          silu_forward(x.data(), y.data(), n);
          return weighted_sum(grad_y, y);
        },
        "grad_x");
  }
}

TEST(Gated, BackwardIsTheDerivativeOfForward) {
  for (const Activation activation : kActivations) {
    for (double spread : {0.1, 3.0, 30.0}) {
      // The series of the normal distribution on complex numbers loses digits further out.
      if (activation == Activation::kGelu && spread > 3.0) continue;
      const int64_t n = 33;
      const std::vector<double> gate = random_values(n, 1, spread);
      const std::vector<double> up = random_values(n, 2);
      const std::vector<double> grad_out = random_values(n, 3);
      std::vector<double> grad_gate(gate.size());
      std::vector<double> grad_up(up.size());
      gated_backward(activation, gate.data(), up.data(), grad_out.data(), grad_gate.data(),
                     grad_up.data(), n);
      std::vector<Complex> complex_gate = converted<Complex>(gate);
      std::vector<Complex> complex_up = converted<Complex>(up);
      std::vector<Complex> out(complex_up.size());
      const auto f = [&] {
        gated_forward(activation, complex_gate.data(), complex_up.data(), out.data(), n);
        return weighted_sum(grad_out, out);
      };
      expect_complex_step(grad_gate, complex_gate, f, "grad_gate");
      expect_complex_step(grad_up, complex_up, f, "grad_up");
    }
  }
}

TEST(Gated, GeluEqualsItsDefinitions) {
  const std::vector<double> gate = random_values(101, 1, 3.0);
  const std::vector<double> up(gate.size(), 2.0);
  std::vector<double> exact(gate.size());
  std::vector<double> by_tanh(gate.size());
  const int64_t n = static_cast<int64_t>(gate.size());
  gated_forward(Activation::kGelu, gate.data(), up.data(), exact.data(), n);
  gated_forward(Activation::kGeluTanh, gate.data(), up.data(), by_tanh.data(), n);
  for (size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i];
    EXPECT_NEAR(exact[i], x * (1.0 + std::erf(x / std::sqrt(2.0))), 1e-14);
    EXPECT_NEAR(by_tanh[i],
                x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x))), 1e-14);
  }
}

TEST(Gated, GeluInFloatFollowsDouble) {
  for (const Activation activation : {Activation::kGeluTanh, Activation::kGelu}) {
    const std::vector<double> gate = telling_values();
    const int64_t n = static_cast<int64_t>(gate.size());
    const std::vector<double> up = rounded_to_f32(random_values(n, 2));
    const std::vector<double> grad = rounded_to_f32(random_values(n, 3));
    std::vector<double> out(gate.size()), grad_gate(gate.size()), grad_up(gate.size());
    gated_forward(activation, gate.data(), up.data(), out.data(), n);
    gated_backward(activation, gate.data(), up.data(), grad.data(), grad_gate.data(),
                   grad_up.data(), n);
    const std::vector<float> gate32 = converted<float>(gate), up32 = converted<float>(up),
                             grad32 = converted<float>(grad);
    std::vector<float> out32(gate.size()), grad_gate32(gate.size()), grad_up32(gate.size());
    gated_forward(activation, gate32.data(), up32.data(), out32.data(), n);
    gated_backward(activation, gate32.data(), up32.data(), grad32.data(), grad_gate32.data(),
                   grad_up32.data(), n);
    // The argument of the exponential, 90 at most before it is 0, is rounded four times.
    for (size_t i = 0; i < gate.size(); ++i) {
      const double bend = std::min(std::abs(gate[i]), 14.0);
      const double bound = (16.0 + 4.0 * bend * bend) * kEpsilon32;
      ASSERT_LE(std::abs(out32[i] - out[i]), bound * std::abs(out[i]) + 1e-35) << gate[i];
      ASSERT_LE(std::abs(grad_up32[i] - grad_up[i]), bound * std::abs(grad_up[i]) + 1e-35)
          << gate[i];
      // The slope is the sum of two terms that may cancel; those of either gelu are at most these.
      const double x = gate[i];
      const double terms = 0.5 * std::erfc(-x / std::sqrt(2.0)) + bend * std::exp(-0.5 * x * x);
      ASSERT_LE(std::abs(grad_gate32[i] - grad_gate[i]),
                2.0 * bound * std::abs(grad[i] * up[i]) * terms + 1e-33)
          << gate[i];
    }
  }
}

TEST(Silu, FloatFollowsDouble) {
  const std::vector<double> x = telling_values();
  const int64_t n = static_cast<int64_t>(x.size());
  const std::vector<double> grad_y = rounded_to_f32(random_values(n, 2));
  std::vector<double> y(x.size());
  std::vector<double> grad_x(x.size());
  silu_forward(x.data(), y.data(), n);
  silu_backward(x.data(), grad_y.data(), grad_x.data(), n);
  const std::vector<float> xf = converted<float>(x);
  std::vector<float> yf(x.size());
  std::vector<float> grad_xf(x.size());
  silu_forward(xf.data(), yf.data(), n);
  silu_backward(xf.data(), converted<float>(grad_y).data(), grad_xf.data(), n);
  // The exponential is good to 2 epsilon, then a sum, a division and products; below -87.3 it is 0,
  // where |x| exp(x) < 1e-35. The gradient cancels near its zero at -1.278: relative to |x|.
  expect_close(yf, y, 1e-35, 6.0 * kEpsilon32, "y");
  for (size_t i = 0; i < x.size(); ++i) {
    const double s = 1.0 / (1.0 + std::exp(-x[i]));
    const double magnitude = std::abs(grad_y[i]) * s * (1.0 + std::abs(x[i]) * (1.0 - s));
    ASSERT_LE(std::abs(grad_xf[i] - grad_x[i]), 1e-35 + 10.0 * kEpsilon32 * magnitude) << x[i];
  }
}

TEST(Swiglu, FloatEqualsSiluTimesUpAndItsGradients) {
  const std::vector<float> gate = converted<float>(telling_values());
  const int64_t n = static_cast<int64_t>(gate.size());
  const std::vector<float> up = converted<float>(random_values(n, 2));
  const std::vector<float> grad_out = converted<float>(random_values(n, 3));
  std::vector<float> out(gate.size());
  std::vector<float> grad_gate(gate.size());
  std::vector<float> grad_up(gate.size());
  gated_forward(Activation::kSilu, gate.data(), up.data(), out.data(), n);
  gated_backward(Activation::kSilu, gate.data(), up.data(), grad_out.data(), grad_gate.data(),
                 grad_up.data(), n);
  std::vector<float> silu(gate.size());
  silu_forward(gate.data(), silu.data(), n);
  std::vector<float> grad_silu(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) grad_silu[i] = grad_out[i] * up[i];
  std::vector<float> expected_grad_gate(gate.size());
  silu_backward(gate.data(), grad_silu.data(), expected_grad_gate.data(), n);
  for (size_t i = 0; i < gate.size(); ++i) {
    const double smallest = std::numeric_limits<float>::min();
    ASSERT_NEAR(out[i], silu[i] * up[i], smallest + kEpsilon32 * std::abs(out[i]));
    ASSERT_NEAR(grad_up[i], grad_out[i] * silu[i], smallest + kEpsilon32 * std::abs(grad_up[i]));
    // The same roundings, fused or not; the factor 1 + x (1 - s) cancels near its zero.
    const double s = 1.0 / (1.0 + std::exp(-static_cast<double>(gate[i])));
    const double magnitude = std::abs(grad_silu[i]) * s * (1.0 + std::abs(gate[i]) * (1.0 - s));
    ASSERT_NEAR(grad_gate[i], expected_grad_gate[i], smallest + 4.0 * kEpsilon32 * magnitude);
  }
}

TEST(Activations, AreFiniteForEveryFiniteArgument) {
  const float largest = std::numeric_limits<float>::max();
  const float smallest = std::numeric_limits<float>::denorm_min();
  std::vector<float> x = {largest,  -largest,  1e30f,  -1e30f,  smallest, -smallest, 0.0f,
                          88.7228f, -88.7228f, 103.9f, -103.9f, 500.0f,   -500.0f};
  const int64_t n = static_cast<int64_t>(x.size());
  const std::vector<float> ones(x.size(), 1.0f);
  std::vector<float> a(x.size());
  std::vector<float> b(x.size());
  silu_forward(x.data(), a.data(), n);
  for (float value : a) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(a[0], largest);
  EXPECT_EQ(a[1], 0.0f);
  silu_backward(x.data(), ones.data(), a.data(), n);
  for (float value : a) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(a[0], 1.0f);
  EXPECT_EQ(a[1], 0.0f);
  EXPECT_EQ(a[6], 0.5f);
  for (const Activation activation : kActivations) {
    gated_forward(activation, x.data(), ones.data(), a.data(), n);
    for (float value : a) EXPECT_TRUE(std::isfinite(value));
    EXPECT_EQ(a[0], largest);
    EXPECT_EQ(a[1], 0.0f);
    gated_backward(activation, x.data(), ones.data(), ones.data(), a.data(), b.data(), n);
    for (float value : a) EXPECT_TRUE(std::isfinite(value));
    for (float value : b) EXPECT_TRUE(std::isfinite(value));
    EXPECT_EQ(a[0], 1.0f);
    EXPECT_EQ(a[1], 0.0f);
  }
}

TEST(Activations, WorkInPlace) {
  const int64_t n = 101;
  const std::vector<float> gate = converted<float>(random_values(n, 1));
  const std::vector<float> up = converted<float>(random_values(n, 2));
  const std::vector<float> grad = converted<float>(random_values(n, 3));
  std::vector<float> grad_gate(gate.size());
  std::vector<float> grad_up(gate.size());
  gated_backward(Activation::kSilu, gate.data(), up.data(), grad.data(), grad_gate.data(),
                 grad_up.data(), n);
  std::vector<float> a = gate;
  std::vector<float> b = up;
  gated_backward(Activation::kSilu, a.data(), b.data(), grad.data(), a.data(), b.data(), n);
  EXPECT_EQ(a, grad_gate);
  EXPECT_EQ(b, grad_up);
}

TEST(Activations, GiveTheSameBitsForAnyNumberOfThreads) {
  const int64_t n = 50001;
  const std::vector<float> gate = converted<float>(random_values(n, 1));
  const std::vector<float> up = converted<float>(random_values(n, 2));
  expect_same_bits_for_any_threads<float>([&] {
    std::vector<float> out(gate.size());
    gated_forward(Activation::kSilu, gate.data(), up.data(), out.data(), n);
    return out;
  });
}

}  // namespace
}  // namespace wgrad::cpu
