#include "cpu/dora.h"

#include <tuple>

#include "testing.h"

namespace wgrad::cpu {
namespace {

/// y = scale_rows(W) x + bias for one scalar, with the norm of W's rows.
template <class T>
struct Layer {
  Layer(int64_t rows, int64_t n)
      : rows(rows),
        n(n),
        u(converted<T>(rounded_to_f32(random_values(rows * n, 1)))),
        magnitude(converted<T>(rounded_to_f32(random_values(n, 2)))),
        bias(converted<T>(rounded_to_f32(random_values(n, 3)))),
        norm(converted<T>(rounded_to_f32(ten_decades(n, 4)))),
        grad_y(converted<T>(rounded_to_f32(random_values(rows * n, 5)))),
        y(converted<T>(rounded_to_f32(random_values(rows * n, 6)))),
        factor(magnitude.size()),
        grad_u(u.size()),
        grad_magnitude(magnitude.size()) {
    for (T& x : norm) x = T(std::abs(x));
  }

  void forward(T shift, bool accumulate) {
    for (size_t j = 0; j < factor.size(); ++j) factor[j] = magnitude[j] / norm[j];
    dora_forward(u.data(), factor.data(), bias.data(), y.data(), shift, rows, n, accumulate);
  }
  void backward() {
    dora_backward(grad_y.data(), factor.data(), norm.data(), u.data(), grad_u.data(),
                  grad_magnitude.data(), rows, n);
  }

  int64_t rows, n;
  std::vector<T> u, magnitude, bias, norm, grad_y, y, factor, grad_u, grad_magnitude;
};

TEST(Dora, BackwardIsTheDerivativeOfForwardWithTheNormHeldConstant) {
  for (auto [rows, n] : {std::pair{1, 1}, {3, 7}, {5, 33}}) {
    Layer<double> real(rows, n);
    real.forward(0.0, false);
    real.backward();
    Layer<Complex> complex(rows, n);
    const auto f = [&] {
      complex.forward(0.0, false);
      return weighted_sum(real.grad_y, complex.y);
    };
    expect_complex_step(real.grad_u, complex.u, f, "grad_u");
    expect_complex_step(real.grad_magnitude, complex.magnitude, f, "grad_magnitude");
  }
}

TEST(Dora, ForwardAddsShiftsAndCanLeaveTheBias) {
  const std::vector<double> u = {1, 2, 3, 4}, factor = {2, -1}, bias = {10, 20};
  std::vector<double> y = {100, 100, 100, 100};
  dora_forward(u.data(), factor.data(), bias.data(), y.data(), -1.0, 2, 2, true);
  EXPECT_EQ(y, (std::vector<double>{111, 116, 113, 112}));
  dora_forward(u.data(), factor.data(), static_cast<const double*>(nullptr), y.data(), 0.0, 2, 2,
               false);
  EXPECT_EQ(y, (std::vector<double>{2, -2, 6, -4}));
}

TEST(Dora, ARowOfZerosStaysZeroAndMovesNoMagnitude) {
  const std::vector<double> w = {3, 4, 0, 0}, magnitude = {10, 7};
  std::vector<double> norm(2), factor(2);
  dora_factors(w.data(), magnitude.data(), norm.data(), factor.data(), 2, 2);
  EXPECT_EQ(norm, (std::vector<double>{5, 0}));
  EXPECT_EQ(factor, (std::vector<double>{2, 0}));
  std::vector<double> u = {1, 1}, grad_u(2), grad_magnitude = {0.5, 0.5};
  const std::vector<double> grad_y = {5, 5};
  dora_backward(grad_y.data(), factor.data(), norm.data(), u.data(), grad_u.data(),
                grad_magnitude.data(), 1, 2);
  EXPECT_EQ(grad_u, (std::vector<double>{10, 0}));
  EXPECT_EQ(grad_magnitude, (std::vector<double>{1.5, 0.5}));
}

TEST(Dora, FloatNormsFollowDoubleOverTenDecades) {
  for (auto [rows, n] : {std::pair{1, 1}, {7, 31}, {33, 576}}) {
    const std::vector<double> w = rounded_to_f32(ten_decades(rows * n, 1));
    const std::vector<double> magnitude = rounded_to_f32(random_values(rows, 2));
    std::vector<double> norm(static_cast<size_t>(rows)), factor(norm.size());
    dora_factors(w.data(), magnitude.data(), norm.data(), factor.data(), rows, n);
    const auto w32 = converted<float>(w), magnitude32 = converted<float>(magnitude);
    std::vector<float> norm32(norm.size()), factor32(norm.size());
    dora_factors(w32.data(), magnitude32.data(), norm32.data(), factor32.data(), rows, n);
    // Summed in double and rounded once; the quotient is rounded once more.
    expect_close(norm32, norm, 0.0, kEpsilon32, "norm");
    expect_close(factor32, factor, 0.0, 2.0 * kEpsilon32, "factor");
  }
}

TEST(Dora, HasTheSameBitsForAnyThreads) {
  expect_same_bits_for_any_threads<float>([] {
    Layer<float> layer(130, 65);
    layer.forward(0.0f, true);
    layer.backward();
    return layer.grad_magnitude;
  });
}

}  // namespace
}  // namespace wgrad::cpu
