#include "cpu/matmul.h"

#include <algorithm>
#include <tuple>

#include "testing.h"

namespace wgrad::cpu {
namespace {

struct Product {
  MatmulOp op;
  int64_t m, n, k;

  int64_t lda() const { return op == MatmulOp::kTN ? m : k; }
  int64_t ldb() const { return op == MatmulOp::kNT ? k : n; }
  double a_at(const std::vector<double>& a, int64_t i, int64_t l) const {
    return op == MatmulOp::kTN ? a[l * m + i] : a[i * k + l];
  }
  double b_at(const std::vector<double>& b, int64_t l, int64_t j) const {
    return op == MatmulOp::kNT ? b[j * k + l] : b[l * n + j];
  }
};

std::vector<Product> odd_products() {
  std::vector<Product> products;
  for (MatmulOp op : {MatmulOp::kNT, MatmulOp::kNN, MatmulOp::kTN}) {
    for (auto [m, n, k] : {std::tuple{1, 1, 1},
                           {1, 33, 7},
                           {33, 1, 7},
                           {7, 33, 1},
                           {97, 101, 103},
                           {31, 32, 33},
                           {2, 129, 65}}) {
      products.push_back({op, m, n, k});
    }
  }
  return products;
}

/// The definition, element by element, and the sum of magnitudes that bounds its rounding.
void reference(const Product& p, const std::vector<double>& a, const std::vector<double>& b,
               double alpha, std::vector<double>& c, std::vector<double>& magnitude) {
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      for (int64_t l = 0; l < p.k; ++l) {
        const double term = alpha * p.a_at(a, i, l) * p.b_at(b, l, j);
        c[i * p.n + j] += term;
        magnitude[i * p.n + j] += std::abs(term);
      }
    }
  }
}

template <class T>
void expect_definition(const Product& p, double unit, bool accumulate) {
  const std::vector<double> a = rounded_to_f32(ten_decades(p.m * p.k, 1));
  const std::vector<double> b = rounded_to_f32(ten_decades(p.n * p.k, 2));
  const std::vector<double> c0 = rounded_to_f32(ten_decades(p.m * p.n, 3));
  const double alpha = 0.75;
  std::vector<double> expected(c0.size(), 0.0);
  std::vector<double> magnitude(c0.size(), 0.0);
  if (accumulate) {
    expected = c0;
    for (size_t i = 0; i < c0.size(); ++i) magnitude[i] = std::abs(c0[i]);
  }
  reference(p, a, b, alpha, expected, magnitude);
  const std::vector<T> ta = converted<T>(a);
  const std::vector<T> tb = converted<T>(b);
  std::vector<T> c = converted<T>(c0);
  matmul(p.op, p.m, p.n, p.k, ta.data(), p.lda(), tb.data(), p.ldb(), c.data(), p.n, T(alpha),
         accumulate);
  // A sum of k products in any order, alpha's product and the final addition: k + 3 roundings.
  const double bound = static_cast<double>(p.k + 3) * unit;
  for (size_t i = 0; i < c.size(); ++i) {
    ASSERT_LE(std::abs(static_cast<double>(std::real(c[i])) - expected[i]), bound * magnitude[i])
        << "op " << static_cast<int>(p.op) << " " << p.m << "x" << p.n << "x" << p.k << " at " << i;
  }
}

TEST(Matmul, EqualsItsDefinitionInEveryFormAndScalar) {
  for (const Product& p : odd_products()) {
    for (bool accumulate : {false, true}) {
      expect_definition<float>(p, kEpsilon32, accumulate);
      expect_definition<double>(p, 3e-16, accumulate);
      expect_definition<Complex>(p, 3e-16, accumulate);
    }
  }
}

TEST(Matmul, TakesRowsThatLieApart) {
  const std::vector<float> a = {1, 2, 99, 3, 4, 99};
  const std::vector<float> b = {5, 6, 99, 99, 7, 8};
  std::vector<float> c(6, -1.0f);
  matmul(MatmulOp::kNT, 2, 2, 2, a.data(), 3, b.data(), 4, c.data(), 3);
  EXPECT_EQ(c, (std::vector<float>{17, 23, -1, 39, 53, -1}));
}

TEST(Matmul, WithoutAnInnerDimensionIsZero) {
  std::vector<float> c(6, 3.0f);
  const float none = 0.0f;
  matmul(MatmulOp::kNN, 2, 3, 0, &none, 0, &none, 3, c.data(), 3, 1.0f, true);
  EXPECT_EQ(c, std::vector<float>(6, 3.0f));
  matmul(MatmulOp::kNN, 2, 3, 0, &none, 0, &none, 3, c.data(), 3);
  EXPECT_EQ(c, std::vector<float>(6, 0.0f));
}

TEST(Matmul, GivesTheSameBitsForAnyNumberOfThreads) {
  for (auto [op, m, n, k] : {std::tuple{MatmulOp::kNT, 130, 200, 300},
                             {MatmulOp::kNN, 130, 16, 576},
                             {MatmulOp::kTN, 16, 576, 440},
                             {MatmulOp::kTN, 33, 7, 5000},
                             {MatmulOp::kNT, 1, 1536, 576},
                             {MatmulOp::kNT, 3, 5, 20000}}) {
    const Product p{op, m, n, k};
    const std::vector<float> a = converted<float>(random_values(p.m * p.k, 1));
    const std::vector<float> b = converted<float>(random_values(p.n * p.k, 2));
    expect_same_bits_for_any_threads<float>([&] {
      std::vector<float> c(static_cast<size_t>(p.m * p.n));
      matmul(p.op, p.m, p.n, p.k, a.data(), p.lda(), b.data(), p.ldb(), c.data(), p.n);
      return c;
    });
  }
}

}  // namespace
}  // namespace wgrad::cpu
