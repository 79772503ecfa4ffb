#include "ops/verify_product.h"

#include <algorithm>
#include <cmath>

namespace wgrad::ops {

namespace {

double absolute_error(const VerifyOperand& o, int64_t row) {
  if (o.absolute.empty()) return 0.0;
  return o.absolute[o.absolute.size() == 1 ? 0 : static_cast<size_t>(row)];
}

struct Element {
  double sum = 0, magnitude = 0, operand_error = 0;
};

Element element(const VerifyProduct& p, int64_t i, int64_t j) {
  Element e;
  for (int64_t t = 0; t < p.k; ++t) {
    const int64_t a_row = p.op == MatmulOp::kTN ? t : i, a_col = p.op == MatmulOp::kTN ? i : t;
    const int64_t b_row = p.op == MatmulOp::kNT ? j : t, b_col = p.op == MatmulOp::kNT ? t : j;
    const int64_t lda = p.op == MatmulOp::kTN ? p.m : p.k;
    const int64_t ldb = p.op == MatmulOp::kNT ? p.k : p.n;
    const double a = static_cast<double>(p.a.values[static_cast<size_t>(a_row * lda + a_col)]);
    const double b = static_cast<double>(p.b.values[static_cast<size_t>(b_row * ldb + b_col)]);
    const double a_error = p.a.relative * std::abs(a) + absolute_error(p.a, a_row);
    const double b_error = p.b.relative * std::abs(b) + absolute_error(p.b, b_row);
    e.sum += a * b;
    e.magnitude += std::abs(a * b);
    e.operand_error += a_error * std::abs(b) + std::abs(a) * b_error + a_error * b_error;
  }
  return e;
}

}  // namespace

void VerifyProduct::compare(VerifyCheck& check, std::string_view name,
                            std::span<const float> seen) const {
  constexpr int64_t kWork = 10'000'000;  // multiplications of one comparison
  const int64_t count = m * n;
  const int64_t samples = std::clamp<int64_t>(kWork / std::max<int64_t>(k, 1), 1000, count);
  // An odd step walks through all rows and columns.
  const int64_t step = samples >= count ? 1 : (count / samples) | 1;
  std::vector<float> values;
  std::vector<double> expected, bounds;
  for (int64_t at = 0; at < count; at += step) {
    const auto index = static_cast<size_t>(at);
    const Element e = element(*this, at / n, at % n);
    const double scaled = static_cast<double>(alpha) * e.sum;
    const double added =
        bias.empty() ? 0.0 : static_cast<double>(bias[static_cast<size_t>(at % n)]);
    const double before = c.empty() ? 0.0 : static_cast<double>(c[index]);
    // Products and sums below f32's normal numbers may become 0.
    const double flushed = static_cast<double>(2 * k + 4) * 0x1p-126;
    const double sum_error =
        e.operand_error + static_cast<double>(k + 1) * per_term * (e.magnitude + e.operand_error);
    values.push_back(seen[index]);
    expected.push_back(scaled + added + before);
    bounds.push_back(std::abs(static_cast<double>(alpha)) * (sum_error + flushed) +
                     4 * kF32Rounding *
                         (std::abs(scaled) + std::abs(added) + std::abs(before) + flushed));
  }
  check.compare(name, values, expected, [&](size_t i) { return bounds[i]; });
}

double half_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

void round_operand_to_f16(VerifyOperand& operand, int64_t columns, bool per_row) {
  operand.relative = 0x1p-10;
  operand.absolute.clear();
  double all = 0.0;
  for (size_t begin = 0; begin < operand.values.size(); begin += static_cast<size_t>(columns)) {
    double largest = 0.0;
    for (size_t i = begin; i < begin + static_cast<size_t>(columns); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(operand.values[i])));
    }
    all = std::max(all, largest);
    if (per_row) operand.absolute.push_back(largest * 0x1p-28);
  }
  if (!per_row) operand.absolute.push_back(all * 0x1p-28);
}

}  // namespace wgrad::ops
