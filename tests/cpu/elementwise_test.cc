#include "cpu/elementwise.h"

#include <cmath>
#include <limits>

#include "cpu/bias.h"
#include "cpu/embedding.h"
#include "testing.h"

namespace wgrad::cpu {
namespace {

constexpr int64_t kSizes[] = {0, 1, 7, 33, 20001};

TEST(Elementwise, EqualsItsDefinitions) {
  for (int64_t n : kSizes) {
    const std::vector<float> x = converted<float>(random_values(n, 1));
    const std::vector<float> y0 = converted<float>(random_values(n, 2));
    std::vector<float> sum = y0;
    add(sum.data(), x.data(), n);
    std::vector<float> out(y0.size());
    add_to(x.data(), y0.data(), out.data(), n);
    std::vector<float> more = y0;
    add_scaled(more.data(), x.data(), 0.5f, n);
    std::vector<float> copied(y0.size());
    scaled_copy(copied.data(), x.data(), 0.3f, n);
    std::vector<float> scaled = y0;
    scale(scaled.data(), -2.0f, n);
    std::vector<float> filled = y0;
    fill(filled.data(), 3.0f, n);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(sum[i], y0[i] + x[i]);
      ASSERT_EQ(out[i], y0[i] + x[i]);
      ASSERT_EQ(more[i], y0[i] + 0.5f * x[i]);
      ASSERT_EQ(copied[i], 0.3f * x[i]);
      ASSERT_EQ(scaled[i], -2.0f * y0[i]);
      ASSERT_EQ(filled[i], 3.0f);
    }
  }
}

TEST(LargestMagnitude, SeesEveryPlaceEitherSignAndNan) {
  EXPECT_EQ(largest_magnitude(nullptr, 0), 0.0f);
  for (int64_t n : {1, 7, 8192, 20001}) {
    for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
      std::vector<float> x = converted<float>(random_values(n, 1));
      x[static_cast<size_t>(at)] = -2e38f;
      EXPECT_EQ(largest_magnitude(x.data(), n), 2e38f);
      x[static_cast<size_t>(at)] = std::numeric_limits<float>::infinity();
      EXPECT_EQ(largest_magnitude(x.data(), n), std::numeric_limits<float>::infinity());
      x[static_cast<size_t>(at)] = -std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(std::isnan(largest_magnitude(x.data(), n)));
    }
  }
}

TEST(Bias, BackwardIsTheDerivativeOfForward) {
  const int64_t rows = 7;
  const int64_t n = 33;
  const std::vector<double> grad_y = random_values(rows * n, 1);
  std::vector<double> grad_bias(n);
  bias_backward(grad_y.data(), grad_bias.data(), rows, n);
  const std::vector<Complex> y0 = converted<Complex>(random_values(rows * n, 2));
  std::vector<Complex> bias = converted<Complex>(random_values(n, 3));
  expect_complex_step(
      grad_bias, bias,
      [&] {
        std::vector<Complex> y = y0;
        add_bias(y.data(), bias.data(), rows, n);
        return weighted_sum(grad_y, y);
      },
      "grad_bias");
}

TEST(Bias, BackwardAccumulatesInOrderForAnyNumberOfThreads) {
  const int64_t rows = 401;
  const int64_t n = 130;
  const std::vector<float> grad_y = converted<float>(ten_decades(rows * n, 4));
  std::vector<float> expected(n, 5.0f);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < n; ++j) expected[j] += grad_y[r * n + j];
  }
  expect_same_bits_for_any_threads<float>([&] {
    std::vector<float> grad_bias(n, 5.0f);
    bias_backward(grad_y.data(), grad_bias.data(), rows, n);
    EXPECT_EQ(grad_bias, expected);
    return grad_bias;
  });
}

TEST(Embedding, BackwardIsTheDerivativeOfForward) {
  const std::vector<uint32_t> ids = {4, 0, 4, 2, 4};
  const int64_t tokens = 5;
  const int64_t hidden = 7;
  const std::vector<double> grad_out = random_values(tokens * hidden, 1);
  std::vector<double> grad_table(5 * hidden);
  embedding_backward(ids.data(), grad_out.data(), grad_table.data(), tokens, hidden);
  std::vector<Complex> table = converted<Complex>(random_values(5 * hidden, 2));
  std::vector<Complex> out(tokens * hidden);
  expect_complex_step(
      grad_table, table,
      [&] {
        embedding_forward(ids.data(), table.data(), out.data(), tokens, hidden);
        return weighted_sum(grad_out, out);
      },
      "grad_table");
}

TEST(Embedding, BackwardAccumulatesInOrderForAnyNumberOfThreads) {
  const int64_t tokens = 400;
  const int64_t hidden = 193;
  std::vector<uint32_t> ids(tokens);
  for (int64_t t = 0; t < tokens; ++t) ids[t] = static_cast<uint32_t>(t * t % 11);
  const std::vector<float> grad_out = converted<float>(ten_decades(tokens * hidden, 3));
  std::vector<float> expected(11 * hidden, 1.0f);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < hidden; ++j) expected[ids[t] * hidden + j] += grad_out[t * hidden + j];
  }
  expect_same_bits_for_any_threads<float>([&] {
    std::vector<float> grad_table(11 * hidden, 1.0f);
    embedding_backward(ids.data(), grad_out.data(), grad_table.data(), tokens, hidden);
    EXPECT_EQ(grad_table, expected);
    return grad_table;
  });
}

}  // namespace
}  // namespace wgrad::cpu
