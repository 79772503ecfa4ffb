#include "cpu/attention.h"

#include <algorithm>

#include "testing.h"

namespace wgrad::cpu {
namespace {

struct Case {
  AttentionShape shape;
  std::vector<uint32_t> row_begin;
  const char* name;
};

AttentionShape shape_of(int64_t queries, int64_t query_heads, int64_t kv_heads, int64_t head_dim,
                        int64_t offset = 0, int64_t window = 0) {
  AttentionShape shape;
  shape.queries = queries;
  shape.keys = queries + offset;
  shape.query_heads = query_heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.query_offset = offset;
  shape.window = window;
  shape.scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  return shape;
}

AttentionShape with_cap(AttentionShape shape, double soft_cap) {
  shape.soft_cap = soft_cap;
  return shape;
}

/// Rows of the given lengths, end to end.
std::vector<uint32_t> rows(const std::vector<int>& lengths) {
  std::vector<uint32_t> begin;
  for (int length : lengths) {
    const uint32_t first = static_cast<uint32_t>(begin.size());
    for (int i = 0; i < length; ++i) begin.push_back(first);
  }
  return begin;
}

std::vector<Case> small_cases() {
  return {
      {shape_of(1, 1, 1, 1), rows({1}), "one token"},
      {shape_of(7, 1, 1, 3), rows({7}), "one row"},
      {shape_of(9, 4, 2, 5), rows({1, 5, 3}), "rows and grouped heads"},
      {shape_of(8, 3, 1, 2, 0, 3), rows({6, 2}), "window"},
      {shape_of(3, 2, 2, 4, 5), rows({3}), "queries after cached keys"},
      {shape_of(3, 2, 1, 4, 5, 4), rows({3}), "cached keys and window"},
      {with_cap(shape_of(9, 4, 2, 5), 1.5), rows({1, 5, 3}), "capped scores"},
  };
}

std::vector<Case> large_cases() {
  return {
      {shape_of(33, 6, 2, 7), rows({33}), "odd sizes"},
      {shape_of(127, 9, 3, 64), rows({1, 31, 32, 63}), "short rows"},
      {shape_of(200, 2, 2, 33), rows({65, 135}), "head_dim past a vector"},
      {shape_of(150, 4, 1, 16, 0, 20), rows({100, 50}), "window within tiles"},
      {shape_of(70, 3, 1, 24, 61), std::vector<uint32_t>(70, 0), "cache"},
      {shape_of(1, 9, 3, 64, 299), std::vector<uint32_t>(1, 0), "generation"},
      {shape_of(700, 2, 1, 16), rows({600, 100}), "row in several chunks of keys"},
      {with_cap(shape_of(150, 4, 1, 16, 0, 20), 3.0), rows({100, 50}), "capped scores"},
      {with_cap(shape_of(70, 3, 1, 24, 61), 50.0), std::vector<uint32_t>(70, 0), "wide cap"},
      {shape_of(5, 128, 1, 8), rows({5}), "more heads in a group than rows in a block"},
  };
}

/// Everything that attention takes and gives, in one scalar.
template <class T>
struct Attention {
  Attention(const Case& c, double spread) : shape(c.shape), row_begin(c.row_begin) {
    const int64_t q_size = shape.queries * shape.query_heads * shape.head_dim;
    const int64_t kv_size = shape.keys * shape.kv_heads * shape.head_dim;
    q = converted<T>(rounded_to_f32(random_values(q_size, 1, spread)));
    k = converted<T>(rounded_to_f32(random_values(kv_size, 2, spread)));
    v = converted<T>(rounded_to_f32(random_values(kv_size, 3)));
    grad_out = converted<T>(rounded_to_f32(random_values(q_size, 4)));
    out.resize(q.size());
    logsumexp.resize(static_cast<size_t>(shape.queries * shape.query_heads));
    // Gradients are set, not accumulated: whatever was there must not matter.
    grad_q.assign(q.size(), T(77));
    grad_k.assign(k.size(), T(77));
    grad_v.assign(v.size(), T(77));
  }
  void forward() {
    attention_forward(shape, q.data(), k.data(), v.data(), row_begin.data(), out.data(),
                      logsumexp.data());
  }
  void backward() {
    attention_backward(shape, q.data(), k.data(), v.data(), row_begin.data(), out.data(),
                       logsumexp.data(), grad_out.data(), grad_q.data(), grad_k.data(),
                       grad_v.data());
  }

  AttentionShape shape;
  std::vector<uint32_t> row_begin;
  std::vector<T> q, k, v, grad_out, out, logsumexp, grad_q, grad_k, grad_v;
};

TEST(Attention, BackwardIsTheDerivativeOfForward) {
  for (const Case& c : small_cases()) {
    SCOPED_TRACE(c.name);
    Attention<double> real(c, 1.0);
    real.forward();
    real.backward();
    Attention<Complex> complex(c, 1.0);
    const auto f = [&] {
      complex.forward();
      return weighted_sum(real.grad_out, complex.out);
    };
    expect_complex_step(real.grad_q, complex.q, f, "grad_q");
    expect_complex_step(real.grad_k, complex.k, f, "grad_k");
    expect_complex_step(real.grad_v, complex.v, f, "grad_v");
  }
}

TEST(Attention, EqualsSoftmaxOverTheKeysThatAQuerySees) {
  for (const Case& c : small_cases()) {
    SCOPED_TRACE(c.name);
    Attention<double> a(c, 1.0);
    a.forward();
    const AttentionShape& s = a.shape;
    for (int64_t i = 0; i < s.queries; ++i) {
      for (int64_t h = 0; h < s.query_heads; ++h) {
        const int64_t kv = h / (s.query_heads / s.kv_heads);
        double sum = 0.0;
        std::vector<double> expected(static_cast<size_t>(s.head_dim), 0.0);
        for (int64_t j = 0; j < s.keys; ++j) {
          const int64_t at = i + s.query_offset;
          if (j > at || j < a.row_begin[i] || (s.window > 0 && j < at - s.window + 1)) continue;
          double score = 0.0;
          for (int64_t e = 0; e < s.head_dim; ++e) {
            score += a.q[(i * s.query_heads + h) * s.head_dim + e] *
                     a.k[(j * s.kv_heads + kv) * s.head_dim + e];
          }
          score *= s.scale;
          if (s.soft_cap > 0) score = s.soft_cap * std::tanh(score / s.soft_cap);
          const double p = std::exp(score);
          sum += p;
          for (int64_t e = 0; e < s.head_dim; ++e) {
            expected[e] += p * a.v[(j * s.kv_heads + kv) * s.head_dim + e];
          }
        }
        EXPECT_NEAR(a.logsumexp[i * s.query_heads + h], std::log(sum), 1e-13);
        for (int64_t e = 0; e < s.head_dim; ++e) {
          EXPECT_NEAR(a.out[(i * s.query_heads + h) * s.head_dim + e], expected[e] / sum, 1e-13);
        }
      }
    }
  }
}

double largest(const std::vector<double>& values) {
  double result = 0.0;
  for (double value : values) result = std::max(result, std::abs(value));
  return result;
}

TEST(Attention, FloatFollowsDouble) {
  for (const Case& c : large_cases()) {
    for (double spread : {1e-3, 1.0, 4.0}) {
      SCOPED_TRACE(std::string(c.name) + ", spread " + std::to_string(spread));
      Attention<double> reference(c, spread);
      reference.forward();
      reference.backward();
      Attention<float> tuned(c, spread);
      tuned.forward();
      tuned.backward();
      // A score is a sum of d products of rounded factors: error_s = (d + 3) eps times the largest
      // sum of magnitudes, d |q| |k| scale. p then has relative error error_s + a few roundings,
      // an output is a mean of v with those weights, a gradient a sum of at most `keys` products.
      const double d = static_cast<double>(c.shape.head_dim);
      const double keys = static_cast<double>(c.shape.keys);
      // A cap lets no error grow, and adds a few roundings of itself.
      const double error_s =
          (d + 3.0) * kEpsilon32 * d * largest(reference.q) * largest(reference.k) * c.shape.scale +
          4.0 * kEpsilon32 * c.shape.soft_cap;
      const double error_p = 2.0 * error_s + (8.0 + std::sqrt(keys)) * kEpsilon32;
      const double v = largest(reference.v);
      expect_close(tuned.out, reference.out, 2.0 * error_p * v, 0.0, "out");
      expect_close(tuned.logsumexp, reference.logsumexp, error_s + 8.0 * kEpsilon32,
                   2.0 * kEpsilon32, "logsumexp");
      const double grad = largest(reference.grad_out);
      const double group = static_cast<double>(c.shape.query_heads / c.shape.kv_heads);
      const double terms = static_cast<double>(c.shape.queries) * group;
      expect_close(tuned.grad_v, reference.grad_v, error_p * grad * std::sqrt(terms) * 8.0, 0.0,
                   "grad_v");
      const double grad_s = 4.0 * error_p * d * grad * v * c.shape.scale;
      expect_close(tuned.grad_q, reference.grad_q, grad_s * largest(reference.k), 0.0, "grad_q");
      expect_close(tuned.grad_k, reference.grad_k, grad_s * largest(reference.q) * std::sqrt(terms),
                   0.0, "grad_k");
    }
  }
}

TEST(Attention, ARowDoesNotDependOnWhatItWasBatchedWith) {
  const Case batch{shape_of(190, 9, 3, 64), rows({80, 110}), "two rows"};
  Attention<float> both(batch, 1.0);
  both.forward();
  both.backward();
  Attention<float> alone({shape_of(110, 9, 3, 64), rows({110}), "one row"}, 1.0);
  const auto second_row = [](const std::vector<float>& values, int64_t width) {
    return std::vector<float>(values.begin() + 80 * width, values.end());
  };
  alone.q = second_row(both.q, 9 * 64);
  alone.k = second_row(both.k, 3 * 64);
  alone.v = second_row(both.v, 3 * 64);
  alone.grad_out = second_row(both.grad_out, 9 * 64);
  alone.forward();
  alone.backward();
  EXPECT_EQ(alone.out, second_row(both.out, 9 * 64));
  EXPECT_EQ(alone.grad_q, second_row(both.grad_q, 9 * 64));
  EXPECT_EQ(alone.grad_k, second_row(both.grad_k, 3 * 64));
  EXPECT_EQ(alone.grad_v, second_row(both.grad_v, 3 * 64));
}

TEST(Attention, KeysThatNoQuerySeesGetNoGradient) {
  Attention<float> a({shape_of(4, 2, 1, 8, 70), std::vector<uint32_t>(4, 66), "late rows"}, 1.0);
  a.forward();
  a.backward();
  for (int64_t e = 0; e < 66 * 8; ++e) {
    ASSERT_EQ(a.grad_k[e], 0.0f);
    ASSERT_EQ(a.grad_v[e], 0.0f);
  }
  EXPECT_NE(a.grad_k[66 * 8], 0.0f);
}

TEST(Attention, StaysFiniteWhereScoresAreLarge) {
  for (double soft_cap : {0.0, 30.0}) {
    Attention<float> a({with_cap(shape_of(70, 2, 1, 16), soft_cap), rows({70}), "large"}, 1e4);
    a.forward();
    a.backward();
    for (const auto* values : {&a.out, &a.logsumexp, &a.grad_q, &a.grad_k, &a.grad_v}) {
      for (float value : *values) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST(Attention, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const Case& c : {Case{shape_of(300, 9, 3, 64), rows({100, 7, 193}), ""},
                        Case{shape_of(700, 4, 2, 16), rows({700}), ""}}) {
    expect_same_bits_for_any_threads<float>([&] {
      Attention<float> a(c, 1.0);
      a.forward();
      a.backward();
      std::vector<float> all = a.out;
      for (const auto* more : {&a.logsumexp, &a.grad_q, &a.grad_k, &a.grad_v}) {
        all.insert(all.end(), more->begin(), more->end());
      }
      return all;
    });
  }
}

}  // namespace
}  // namespace wgrad::cpu
