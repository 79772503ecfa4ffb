#include "cpu/rms_norm.h"

#include <tuple>

#include "testing.h"

namespace wgrad::cpu {
namespace {

constexpr double kEps = 1e-5;

/// Everything that the norm takes and gives, in one scalar.
template <class T>
struct Norm {
  Norm(int64_t rows, int64_t n, const std::vector<double>& values)
      : rows(rows),
        n(n),
        x(converted<T>(values)),
        weight(converted<T>(rounded_to_f32(random_values(n, 2)))),
        grad_y(converted<T>(rounded_to_f32(random_values(rows * n, 3)))),
        y(x.size()),
        inv_rms(static_cast<size_t>(rows)),
        grad_x(x.size()),
        grad_weight(weight.size()) {}

  void forward() {
    rms_norm_forward(x.data(), weight.data(), y.data(), inv_rms.data(), rows, n, kEps, offset);
  }
  void backward(bool accumulate = false) {
    rms_norm_backward(x.data(), weight.data(), inv_rms.data(), grad_y.data(), grad_x.data(),
                      grad_weight.data(), rows, n, accumulate, offset);
  }

  int64_t rows, n;
  double offset = 0.0;  // of the weight
  std::vector<T> x, weight, grad_y, y, inv_rms, grad_x, grad_weight;
};

TEST(RmsNorm, BackwardIsTheDerivativeOfForward) {
  for (auto [rows, n] : {std::pair{1, 1}, {3, 7}, {2, 33}}) {
    const std::vector<double> x = random_values(rows * n, 1);
    for (double offset : {0.0, 1.0}) {
      Norm<double> real(rows, n, x);
      real.offset = offset;
      real.forward();
      real.backward();
      Norm<Complex> complex(rows, n, x);
      complex.offset = offset;
      const auto f = [&] {
        complex.forward();
        return weighted_sum(real.grad_y, complex.y);
      };
      expect_complex_step(real.grad_x, complex.x, f, "grad_x");
      expect_complex_step(real.grad_weight, complex.weight, f, "grad_weight");
    }
  }
}

TEST(RmsNorm, EqualsItsDefinition) {
  Norm<double> norm(1, 3, {1.0, -2.0, 2.0});
  norm.weight = {1.0, 2.0, 3.0};
  norm.forward();
  const double r = std::sqrt(3.0 + kEps);
  EXPECT_DOUBLE_EQ(norm.inv_rms[0], 1.0 / r);
  EXPECT_DOUBLE_EQ(norm.y[0], 1.0 / r);
  EXPECT_DOUBLE_EQ(norm.y[1], -4.0 / r);
  EXPECT_DOUBLE_EQ(norm.y[2], 6.0 / r);
  norm.offset = 1.0;
  norm.forward();
  EXPECT_DOUBLE_EQ(norm.y[0], 2.0 / r);
  EXPECT_DOUBLE_EQ(norm.y[1], -6.0 / r);
  EXPECT_DOUBLE_EQ(norm.y[2], 8.0 / r);
}

TEST(RmsNorm, AnOffsetIsTheSameAsALargerWeight) {
  Norm<float> plain(33, 70, random_values(33 * 70, 1));
  Norm<float> shifted = plain;
  for (float& w : plain.weight) w = 0.5f * std::round(w) + 1.0f;  // so that the sum is exact
  for (size_t j = 0; j < plain.weight.size(); ++j) shifted.weight[j] = plain.weight[j] - 1.0f;
  shifted.offset = 1.0;
  plain.forward();
  shifted.forward();
  plain.backward();
  shifted.backward();
  EXPECT_EQ(plain.y, shifted.y);
  EXPECT_EQ(plain.grad_x, shifted.grad_x);
  EXPECT_EQ(plain.grad_weight, shifted.grad_weight);
}

TEST(RmsNorm, FloatFollowsDoubleOverTenDecades) {
  for (auto [rows, n] : {std::pair{1, 1}, {7, 31}, {33, 576}, {5, 4097}}) {
    const std::vector<double> x = rounded_to_f32(ten_decades(rows * n, 1));
    Norm<double> reference(rows, n, x);
    reference.forward();
    reference.backward();
    Norm<float> tuned(rows, n, x);
    tuned.forward();
    tuned.backward();
    // 1 / r is rounded once; y is two more products.
    expect_close(tuned.inv_rms, reference.inv_rms, 0.0, kEpsilon32, "inv_rms");
    expect_close(tuned.y, reference.y, 0.0, 2.0 * kEpsilon32, "y");
    // The mean of u x / r: |x / r| <= sqrt(n), |u| < 25; n terms of four roundings each.
    const double size = static_cast<double>(n);
    for (int64_t r = 0; r < rows; ++r) {
      const double inverse = reference.inv_rms[r];
      double magnitude = 0.0;
      for (int64_t j = 0; j < n; ++j) {
        magnitude += std::abs(reference.weight[j] * reference.grad_y[r * n + j] * inverse *
                              reference.x[r * n + j]);
      }
      for (int64_t j = 0; j < n; ++j) {
        const int64_t i = r * n + j;
        const double u = std::abs(reference.weight[j] * reference.grad_y[i]);
        const double normed = std::abs(reference.x[i]) * inverse;
        const double bound =
            inverse * kEpsilon32 * (3.0 * u + normed * magnitude / size * (std::sqrt(size) + 8.0));
        ASSERT_LE(std::abs(tuned.grad_x[i] - reference.grad_x[i]), bound) << r << ", " << j;
      }
    }
    const double largest_row = std::sqrt(size) * 6.0;
    expect_close(tuned.grad_weight, reference.grad_weight,
                 static_cast<double>(rows + 3) * kEpsilon32 * largest_row * std::sqrt(rows), 0.0,
                 "grad_weight");
  }
}

TEST(RmsNorm, DoesNotOverflowWhereSquaresWould) {
  Norm<float> norm(2, 33, std::vector<double>(66, 1e25));
  norm.forward();
  norm.backward();
  for (int64_t i = 0; i < 66; ++i) {
    EXPECT_NEAR(norm.y[i], norm.weight[i % 33], 1e-6 * std::abs(norm.weight[i % 33]));
    EXPECT_TRUE(std::isfinite(norm.grad_x[i]));
  }
}

TEST(RmsNorm, AccumulatesWhereAsked) {
  const int64_t rows = 3;
  const int64_t n = 17;
  Norm<double> set(rows, n, random_values(rows * n, 1));
  set.forward();
  set.grad_x.assign(set.grad_x.size(), 99.0);
  set.backward(false);
  Norm<double> added = set;
  added.grad_x.assign(added.grad_x.size(), 10.0);
  added.backward(true);
  for (size_t i = 0; i < set.grad_x.size(); ++i) {
    EXPECT_NEAR(added.grad_x[i], 10.0 + set.grad_x[i], 1e-14);
  }
  // The second call added to the weight's gradient of the first.
  for (size_t j = 0; j < set.grad_weight.size(); ++j) {
    EXPECT_NEAR(added.grad_weight[j], 2.0 * set.grad_weight[j], 1e-14);
  }
}

TEST(RmsNorm, WorksInPlaceAndWithoutAWeightGradient) {
  const int64_t rows = 4;
  const int64_t n = 33;
  Norm<float> apart(rows, n, random_values(rows * n, 1));
  apart.forward();
  apart.backward();
  Norm<float> in_place(rows, n, random_values(rows * n, 1));
  std::vector<float> y = in_place.x;
  rms_norm_forward(y.data(), in_place.weight.data(), y.data(), in_place.inv_rms.data(), rows, n,
                   kEps);
  EXPECT_EQ(y, apart.y);
  std::vector<float> grad = in_place.grad_y;
  rms_norm_backward(in_place.x.data(), in_place.weight.data(), in_place.inv_rms.data(), grad.data(),
                    grad.data(), static_cast<float*>(nullptr), rows, n, false);
  EXPECT_EQ(grad, apart.grad_x);
}

TEST(RmsNorm, GivesTheSameBitsForAnyNumberOfThreads) {
  const int64_t rows = 201;
  const int64_t n = 577;
  expect_same_bits_for_any_threads<float>([&] {
    Norm<float> norm(rows, n, random_values(rows * n, 1));
    norm.forward();
    norm.backward();
    norm.y.insert(norm.y.end(), norm.grad_x.begin(), norm.grad_x.end());
    norm.y.insert(norm.y.end(), norm.grad_weight.begin(), norm.grad_weight.end());
    return norm.y;
  });
}

}  // namespace
}  // namespace wgrad::cpu
