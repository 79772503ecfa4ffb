#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cpu/dora.h"
#include "ops/dora.h"
#include "ops/verify_families.h"

namespace wgrad::ops {
namespace {

constexpr double u = kF32Rounding;

struct Shape2 {
  int64_t rows, n;
};

size_t count(Shape2 s) { return static_cast<size_t>(s.rows * s.n); }

Tensor upload(Context& ctx, Shape shape, const std::vector<float>& values) {
  return ctx.make<float>(std::move(shape), DType::kF32, values, "verify");
}

/// Norms over ten decades, one of them zero.
std::vector<float> norms(int64_t n, uint64_t seed) {
  std::vector<float> values = verify_decades(static_cast<size_t>(n), seed);
  for (float& x : values) x = std::abs(x);
  if (n > 2) values[1] = 0.0f;
  return values;
}

VerifyResult factors_case(Context& ctx, const std::string& what, Shape2 s) {
  VerifyCheck check("dora_factors", what, reduction_path(ctx));
  std::vector<float> w = verify_decades(count(s), 1);
  if (s.rows > 2) std::fill_n(w.begin() + s.n, s.n, 0.0f);
  const std::vector<float> magnitude = verify_decades(static_cast<size_t>(s.rows), 2);
  std::vector<double> norm(magnitude.size()), factor(magnitude.size());
  cpu::dora_factors(to_double(w).data(), to_double(magnitude).data(), norm.data(), factor.data(),
                    s.rows, s.n);
  const DoraFactors out = {ctx.allocate({s.rows}, DType::kF32, "verify"),
                           ctx.allocate({s.rows}, DType::kF32, "verify")};
  dora_row_factors(ctx, upload(ctx, {s.rows, s.n}, w), upload(ctx, {s.rows}, magnitude), out);
  // A lane's own additions, the lanes of a vector and the tree over invocations, halved by the
  // root; WGSL's sqrt may err as a division of 2.5 ulp by an inverseSqrt of 2 ulp does.
  const double relative = (0.5 * (static_cast<double>(s.n) / 256.0 + 12.0) + 10.0) * u;
  check.compare("norm", ctx.read<float>(out.norm), norm,
                [&](size_t i) { return relative * norm[i]; });
  check.compare("factor", ctx.read<float>(out.factor), factor,
                [&](size_t i) { return (relative + 6.0 * u) * std::abs(factor[i]); });
  return check.result();
}

VerifyResult forward_case(Context& ctx, const std::string& what, Shape2 s, bool accumulate) {
  VerifyCheck check("dora_forward", what, "core");
  const float shift = accumulate ? -1.0f : 0.0f;
  const std::vector<float> x = verify_decades(count(s), 1), y = verify_uniform(count(s), 2);
  const std::vector<float> factor = verify_decades(static_cast<size_t>(s.n), 3, -2, 2);
  const std::vector<float> bias = verify_uniform(static_cast<size_t>(s.n), 4);
  std::vector<double> expected = to_double(y);
  const std::vector<double> bias64 = to_double(bias);
  cpu::dora_forward(to_double(x).data(), to_double(factor).data(),
                    accumulate ? nullptr : bias64.data(), expected.data(),
                    static_cast<double>(shift), s.rows, s.n, accumulate);
  const Tensor out = upload(ctx, {s.rows, s.n}, y);
  dora_forward(ctx, upload(ctx, {s.rows, s.n}, x), upload(ctx, {s.n}, factor),
               accumulate ? Tensor() : upload(ctx, {s.n}, bias), shift, out, accumulate);
  check.compare("y", ctx.read<float>(out), expected, [&](size_t i) {
    const size_t j = i % static_cast<size_t>(s.n);
    const double product =
        (std::abs(static_cast<double>(factor[j])) + std::abs(shift)) * std::abs(x[i]);
    return 3.0 * u * (product + std::abs(static_cast<double>(accumulate ? y[i] : bias[j])));
  });
  return check.result();
}

VerifyResult backward_case(Context& ctx, const std::string& what, Shape2 s) {
  VerifyCheck check("dora_backward", what, "core");
  const std::vector<float> grad_y = verify_uniform(count(s), 1), x = verify_uniform(count(s), 2);
  const std::vector<float> factor = verify_decades(static_cast<size_t>(s.n), 3);
  const std::vector<float> norm = norms(s.n, 4);
  const std::vector<float> start = verify_uniform(static_cast<size_t>(s.n), 5);
  std::vector<double> terms = to_double(x), grad_u(x.size()), grad_magnitude = to_double(start);
  cpu::dora_backward(to_double(grad_y).data(), to_double(factor).data(), to_double(norm).data(),
                     terms.data(), grad_u.data(), grad_magnitude.data(), s.rows, s.n);
  std::vector<double> size(start.begin(), start.end());
  for (double& value : size) value = std::abs(value);
  for (size_t i = 0; i < terms.size(); ++i) size[i % size.size()] += std::abs(terms[i]);
  const DoraFactors factors = {upload(ctx, {s.n}, norm), upload(ctx, {s.n}, factor)};
  const Tensor out_u = ctx.allocate({s.rows, s.n}, DType::kF32, "verify");
  const Tensor out_magnitude = upload(ctx, {s.n}, start);
  dora_backward(ctx, upload(ctx, {s.rows, s.n}, grad_y), factors, upload(ctx, {s.rows, s.n}, x),
                out_u, out_magnitude);
  check.compare("grad_u", ctx.read<float>(out_u), grad_u,
                [&](size_t i) { return u * std::abs(grad_u[i]); });
  // Terms of a product and a division of 2.5 ulp; sums of 64 rows, then of parts, then the start.
  const double depth = 8.0 + 64.0 + static_cast<double>(s.rows) / 64.0 + 1.0;
  check.compare("grad_magnitude", ctx.read<float>(out_magnitude), grad_magnitude,
                [&](size_t j) { return depth * u * size[j]; });
  return check.result();
}

}  // namespace

void add_dora_cases(const Context&, VerifyLevel level, std::vector<VerifyCase>& cases) {
  std::vector<Shape2> shapes = {{1, 1}, {3, 31}, {33, 33}, {130, 64}, {7, 576}, {65, 257}};
  if (level == VerifyLevel::kFull) {
    for (Shape2 s : {Shape2{64, 4096}, {2048, 1024}, {5, 16384}, {11008, 257}}) shapes.push_back(s);
  }
  for (Shape2 s : shapes) {
    const std::string what = fmt::format("rows {}, n {}, 1e-5..1e5", s.rows, s.n);
    cases.push_back(
        {"dora_factors", what, [=](Context& ctx) { return factors_case(ctx, what, s); }});
    for (bool accumulate : {false, true}) {
      const std::string full = what + (accumulate ? ", accumulate" : "");
      cases.push_back({"dora_forward", full,
                       [=](Context& ctx) { return forward_case(ctx, full, s, accumulate); }});
    }
    cases.push_back(
        {"dora_backward", what, [=](Context& ctx) { return backward_case(ctx, what, s); }});
  }
}

}  // namespace wgrad::ops
