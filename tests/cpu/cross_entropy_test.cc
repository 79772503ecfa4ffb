#include "cpu/cross_entropy.h"

#include <algorithm>

#include "cpu/linear_cross_entropy.h"
#include "cpu/matmul.h"
#include "cpu/softmax.h"
#include "testing.h"

namespace wgrad::cpu {
namespace {

TEST(Softmax, BackwardIsTheDerivativeOfForward) {
  for (auto [rows, n] : {std::pair{1, 1}, {3, 7}, {2, 33}}) {
    const std::vector<double> values = random_values(rows * n, 1, 3.0);
    const std::vector<double> grad_y = random_values(rows * n, 2);
    std::vector<double> y(values.size());
    std::vector<double> grad_x(values.size());
    softmax_forward(values.data(), y.data(), rows, n);
    softmax_backward(y.data(), grad_y.data(), grad_x.data(), rows, n);
    std::vector<Complex> x = converted<Complex>(values);
    std::vector<Complex> complex_y(x.size());
    expect_complex_step(
        grad_x, x,
        [&] {
          softmax_forward(x.data(), complex_y.data(), rows, n);
          return weighted_sum(grad_y, complex_y);
        },
        "grad_x");
  }
}

TEST(Softmax, RowsSumToOneAndFollowDouble) {
  for (int64_t n : {1, 7, 33, 1000, 50001}) {
    const int64_t rows = 3;
    const std::vector<double> x = rounded_to_f32(random_values(rows * n, 1, 5.0));
    std::vector<double> y(x.size());
    softmax_forward(x.data(), y.data(), rows, n);
    const std::vector<float> xf = converted<float>(x);
    std::vector<float> yf(x.size());
    softmax_forward(xf.data(), yf.data(), rows, n);
    // The argument's rounding (|x - max| < 64) moves the exponential by 32 epsilon; its own 2.
    expect_close(yf, y, 1e-37, 40.0 * kEpsilon32, "y");
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0.0;
      for (int64_t j = 0; j < n; ++j) sum += yf[r * n + j];
      EXPECT_NEAR(sum, 1.0, 2.0 * kEpsilon32) << n;
    }
  }
}

TEST(Softmax, IsFiniteForEveryFiniteRow) {
  std::vector<float> x = {3e38f, -3e38f, 0.0f, -3e38f, -3e38f, -3e38f};
  softmax_forward(x.data(), x.data(), 2, 3);
  const float third = 1.0f / 3.0f;
  EXPECT_EQ(x, (std::vector<float>{1.0f, 0.0f, 0.0f, third, third, third}));
}

std::vector<int32_t> some_labels(int64_t tokens, int64_t vocab) {
  std::vector<int32_t> labels(static_cast<size_t>(tokens));
  for (int64_t t = 0; t < tokens; ++t) {
    labels[t] = t % 3 == 1 ? -100 : static_cast<int32_t>(t * 7919 % vocab);
  }
  return labels;
}

TEST(CrossEntropy, BackwardIsTheDerivativeOfForward) {
  const int64_t tokens = 4;
  const int64_t vocab = 33;
  const std::vector<int32_t> labels = {5, -100, 32, 33};
  const std::vector<double> values = random_values(tokens * vocab, 1, 4.0);
  std::vector<double> losses(tokens);
  std::vector<double> logsumexp(tokens);
  cross_entropy_forward(values.data(), labels.data(), losses.data(), logsumexp.data(), tokens,
                        vocab);
  std::vector<double> gradient = values;
  cross_entropy_backward(gradient.data(), labels.data(), logsumexp.data(), tokens, vocab, 0.7);
  std::vector<Complex> logits = converted<Complex>(values);
  std::vector<Complex> complex_losses(tokens);
  std::vector<Complex> complex_logsumexp(tokens);
  expect_complex_step(
      gradient, logits,
      [&] {
        cross_entropy_forward(logits.data(), labels.data(), complex_losses.data(),
                              complex_logsumexp.data(), tokens, vocab);
        return weighted_sum(std::vector<double>(tokens, 0.7), complex_losses);
      },
      "gradient");
}

TEST(CrossEntropy, ErrorDoesNotGrowWithTheVocabulary) {
  for (int64_t vocab : {1, 7, 1000, 32000, 128256, 151936}) {
    const int64_t tokens = 3;
    const std::vector<double> logits = rounded_to_f32(random_values(tokens * vocab, 1, 3.0));
    const std::vector<int32_t> labels = some_labels(tokens, vocab);
    std::vector<double> losses(tokens);
    std::vector<double> logsumexp(tokens);
    cross_entropy_forward(logits.data(), labels.data(), losses.data(), logsumexp.data(), tokens,
                          vocab);
    std::vector<double> gradient = logits;
    const float scale = 0.3f;
    cross_entropy_backward(gradient.data(), labels.data(), logsumexp.data(), tokens, vocab,
                           static_cast<double>(scale));

    std::vector<float> tuned = converted<float>(logits);
    std::vector<float> tuned_losses(tokens);
    std::vector<float> tuned_logsumexp(tokens);
    cross_entropy_forward(tuned.data(), labels.data(), tuned_losses.data(), tuned_logsumexp.data(),
                          tokens, vocab);
    // A relative error of the sum is an absolute one of its logarithm: 2 epsilon of an exponential,
    // the rounding of its argument (|x - max| < 32: 16 epsilon at the far end, where it weighs
    // nothing) and of the result, below 32.
    expect_close(tuned_losses, losses, 1e-5, 0.0, "losses");
    expect_close(tuned_losses, losses, 4.0 * kEpsilon32, kEpsilon32, "losses");
    expect_close(tuned_logsumexp, logsumexp, 4.0 * kEpsilon32, kEpsilon32, "logsumexp");

    cross_entropy_backward(tuned.data(), labels.data(), tuned_logsumexp.data(), tokens, vocab,
                           scale);
    // lse (below 32) is off by 16 epsilon at most, the argument by as much, the exponential by 2.
    expect_close(tuned, gradient, 40.0 * kEpsilon32 * scale, 0.0, "gradient");
    for (int64_t t = 0; t < tokens; ++t) {
      double sum = 0.0;
      for (int64_t j = 0; j < vocab; ++j) {
        const float g = tuned[t * vocab + j];
        sum += static_cast<double>(g);
        ASSERT_LE(std::abs(g), scale);
        if (labels[t] < 0) {
          ASSERT_EQ(g, 0.0f);
        }
      }
      EXPECT_NEAR(sum, 0.0, 40.0 * kEpsilon32 * scale) << vocab;
    }
  }
}

TEST(CrossEntropy, LabelsOutsideTheVocabularyDoNotCount) {
  const int64_t vocab = 5;
  const std::vector<int32_t> labels = {-100, -1, 5, 2147483647, 4};
  std::vector<float> logits = converted<float>(random_values(25, 1));
  std::vector<float> losses(5, 7.0f);
  std::vector<float> logsumexp(5);
  cross_entropy_forward(logits.data(), labels.data(), losses.data(), logsumexp.data(), 5, vocab);
  for (int t = 0; t < 4; ++t) EXPECT_EQ(losses[t], 0.0f);
  EXPECT_GT(losses[4], 0.0f);
  cross_entropy_backward(logits.data(), labels.data(), logsumexp.data(), 5, vocab, 1.0f);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(logits[i], 0.0f);
  EXPECT_LT(logits[24], 0.0f);
}

TEST(CrossEntropy, LossIsNeverNegativeAndNeverLosesASmallOne) {
  // One logit towers over the others: the loss is the sum of the others' exponentials.
  const int64_t vocab = 1000;
  std::vector<float> logits(vocab, 0.0f);
  logits[3] = 20.0f;
  const std::vector<int32_t> labels = {3};
  float loss = -1.0f;
  float logsumexp = 0.0f;
  cross_entropy_forward(logits.data(), labels.data(), &loss, &logsumexp, 1, vocab);
  const double expected = std::log1p(999.0 * std::exp(-20.0));
  EXPECT_NEAR(loss, expected, 1e-6 * expected);
  logits[3] = 1e4f;
  cross_entropy_forward(logits.data(), labels.data(), &loss, &logsumexp, 1, vocab);
  EXPECT_EQ(loss, 0.0f);
}

/// hidden, weight and labels of a small head.
template <class T>
struct Head {
  Head(int64_t tokens, int64_t hidden_dim, int64_t vocab)
      : tokens(tokens),
        hidden_dim(hidden_dim),
        vocab(vocab),
        hidden(converted<T>(random_values(tokens * hidden_dim, 1))),
        weight(converted<T>(random_values(vocab * hidden_dim, 2))),
        labels(some_labels(tokens, vocab)),
        losses(static_cast<size_t>(tokens)),
        grad_hidden(hidden.size(), T(9)),
        grad_weight(weight.size()) {}
  void run(int64_t chunk_rows) {
    linear_cross_entropy(hidden.data(), weight.data(), labels.data(), T(0.25), losses.data(),
                         grad_hidden.data(), grad_weight.data(), tokens, hidden_dim, vocab, map,
                         chunk_rows);
  }

  int64_t tokens, hidden_dim, vocab;
  LogitMap map;
  std::vector<T> hidden, weight;
  std::vector<int32_t> labels;
  std::vector<T> losses, grad_hidden, grad_weight;
};

TEST(LinearCrossEntropy, GradientsAreTheDerivatives) {
  for (const LogitMap map :
       {LogitMap(), LogitMap{0.25, 0.0}, LogitMap{1.0, 2.0}, LogitMap{0.5, 1.5}}) {
    Head<double> real(7, 5, 33);
    real.map = map;
    real.run(2);
    Head<Complex> complex(7, 5, 33);
    const auto f = [&] {
      linear_cross_entropy(complex.hidden.data(), complex.weight.data(), complex.labels.data(),
                           Complex(1), complex.losses.data(), static_cast<Complex*>(nullptr),
                           static_cast<Complex*>(nullptr), 7, 5, 33, map, 3);
      return weighted_sum(std::vector<double>(7, 0.25), complex.losses);
    };
    expect_complex_step(real.grad_hidden, complex.hidden, f, "grad_hidden");
    expect_complex_step(real.grad_weight, complex.weight, f, "grad_weight");
  }
}

TEST(LinearCrossEntropy, AScaledOrCappedLogitIsItsDefinition) {
  std::vector<double> x = {-300.0, -2.0, 0.0, 0.5, 40.0};
  const std::vector<double> before = x;
  map_logits(x.data(), 5, {0.5, 30.0});
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_DOUBLE_EQ(x[i], 30.0 * std::tanh(0.5 * before[i] / 30.0));
  }
  x = before;
  map_logits(x.data(), 5, {0.25, 0.0});
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], 0.25 * before[i]);
  map_logits(x.data(), 5, {});
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], 0.25 * before[i]);
}

TEST(CrossEntropy, CappedFloatFollowsDouble) {
  const int64_t tokens = 3, vocab = 1000;
  const LogitMap map = {0.5, 30.0};
  const float scale = 0.3f;
  std::vector<double> logits = rounded_to_f32(random_values(tokens * vocab, 1, 40.0));
  std::vector<float> tuned = converted<float>(logits);
  const std::vector<int32_t> labels = some_labels(tokens, vocab);
  std::vector<double> losses(tokens), logsumexp(tokens);
  map_logits(logits.data(), tokens * vocab, map);
  cross_entropy_forward(logits.data(), labels.data(), losses.data(), logsumexp.data(), tokens,
                        vocab);
  cross_entropy_backward(logits.data(), labels.data(), logsumexp.data(), tokens, vocab,
                         static_cast<double>(scale), map);
  std::vector<float> tuned_losses(tokens), tuned_logsumexp(tokens);
  map_logits(tuned.data(), tokens * vocab, map);
  cross_entropy_forward(tuned.data(), labels.data(), tuned_losses.data(), tuned_logsumexp.data(),
                        tokens, vocab);
  cross_entropy_backward(tuned.data(), labels.data(), tuned_logsumexp.data(), tokens, vocab, scale,
                         map);
  // A capped logit, below 30, errs by 5 epsilon relative; the rest as without a cap.
  const double error = 2.0 * 150.0 * kEpsilon32;
  expect_close(tuned_losses, losses, error, kEpsilon32, "losses");
  expect_close(tuned, logits, (error + 60.0 * kEpsilon32) * scale, 0.0, "gradient");
}

TEST(LinearCrossEntropy, AnyChunkGivesTheSameBitsInDouble) {
  Head<double> whole(23, 9, 101);
  whole.run(23);
  for (int64_t chunk : {1, 2, 7, 16, 22, 100, 0}) {
    Head<double> chunked(23, 9, 101);
    chunked.run(chunk);
    EXPECT_EQ(chunked.losses, whole.losses) << chunk;
    EXPECT_EQ(chunked.grad_hidden, whole.grad_hidden) << chunk;
    EXPECT_EQ(chunked.grad_weight, whole.grad_weight) << chunk;
  }
}

TEST(LinearCrossEntropy, EqualsTheProductFollowedByCrossEntropy) {
  for (int64_t vocab : {1000, 32000}) {
    Head<float> fused(20, 33, vocab);
    fused.run(8);
    Head<double> composed(20, 33, vocab);
    composed.hidden = converted<double>(fused.hidden);
    composed.weight = converted<double>(fused.weight);
    std::vector<double> logits(20 * vocab);
    std::vector<double> logsumexp(20);
    matmul(MatmulOp::kNT, 20, vocab, 33, composed.hidden.data(), 33, composed.weight.data(), 33,
           logits.data(), vocab);
    cross_entropy_forward(logits.data(), composed.labels.data(), composed.losses.data(),
                          logsumexp.data(), 20, vocab);
    cross_entropy_backward(logits.data(), composed.labels.data(), logsumexp.data(), 20, vocab,
                           0.25);
    matmul(MatmulOp::kNN, 20, 33, vocab, logits.data(), vocab, composed.weight.data(), 33,
           composed.grad_hidden.data(), 33);
    expect_close(fused.losses, composed.losses, 1e-5, kEpsilon32, "losses");
    expect_close(fused.grad_hidden, composed.grad_hidden, 1e-5, 0.0, "grad_hidden");
  }
}

TEST(LinearCrossEntropy, MaskedTokensGetNothingAndCostNothing) {
  Head<float> head(6, 4, 50);
  std::fill(head.labels.begin(), head.labels.end(), -100);
  head.losses.assign(6, 5.0f);
  head.run(0);
  EXPECT_EQ(head.losses, std::vector<float>(6, 0.0f));
  EXPECT_EQ(head.grad_hidden, std::vector<float>(24, 0.0f));
  EXPECT_EQ(head.grad_weight, std::vector<float>(200, 0.0f));
}

TEST(LinearCrossEntropy, GradientMayTakeThePlaceOfTheHiddenStates) {
  Head<float> apart(11, 8, 60);
  apart.run(4);
  Head<float> in_place(11, 8, 60);
  linear_cross_entropy(in_place.hidden.data(), in_place.weight.data(), in_place.labels.data(),
                       0.25f, in_place.losses.data(), in_place.hidden.data(),
                       static_cast<float*>(nullptr), 11, 8, 60, {}, 4);
  EXPECT_EQ(in_place.hidden, apart.grad_hidden);
}

TEST(LinearCrossEntropy, GivesTheSameBitsForAnyNumberOfThreads) {
  expect_same_bits_for_any_threads<float>([&] {
    Head<float> head(70, 64, 3001);
    head.run(16);
    std::vector<float> all = head.losses;
    all.insert(all.end(), head.grad_hidden.begin(), head.grad_hidden.end());
    all.insert(all.end(), head.grad_weight.begin(), head.grad_weight.end());
    return all;
  });
}

}  // namespace
}  // namespace wgrad::cpu
