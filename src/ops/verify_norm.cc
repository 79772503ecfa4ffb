#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "cpu/rms_norm.h"
#include "ops/norm.h"
#include "ops/verify_families.h"

namespace wgrad::ops {
namespace {

constexpr double u = kF32Rounding;
constexpr float kEps = 1e-6f;

struct Shape2 {
  int64_t rows, n;
  float weight_offset = 0.0f;
};

/// Additions that one term of a row's sum goes through at most: a lane's own, the lanes of a
/// vector, the tree over invocations.
double row_depth(int64_t n) { return static_cast<double>(n) / 256.0 + 12.0; }

/// x up to ten decades; rows of one magnitude each, so that no row is all noise beside its largest.
std::vector<float> rows_of_decades(Shape2 s, uint64_t seed) {
  const std::vector<float> base = verify_uniform(static_cast<size_t>(s.rows * s.n), seed);
  const std::vector<float> size = verify_decades(static_cast<size_t>(s.rows), seed + 1);
  std::vector<float> out(base.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = base[i] * size[i / static_cast<size_t>(s.n)];
  return out;
}

struct Inputs {
  std::vector<float> x, weight, grad_y, grad_x, grad_weight, inv_rms;
  std::vector<double> y, inv_rms64;

  Inputs(Shape2 s, uint64_t seed)
      : x(rows_of_decades(s, seed)),
        weight(verify_decades(static_cast<size_t>(s.n), seed + 10, -2, 2)),
        grad_y(rows_of_decades(s, seed + 20)),
        grad_x(verify_uniform(x.size(), seed + 30)),
        grad_weight(verify_uniform(weight.size(), seed + 40)),
        y(x.size()),
        inv_rms64(static_cast<size_t>(s.rows)) {
    cpu::rms_norm_forward(to_double(x).data(), to_double(weight).data(), y.data(), inv_rms64.data(),
                          s.rows, s.n, static_cast<double>(kEps),
                          static_cast<double>(s.weight_offset));
    inv_rms.assign(inv_rms64.begin(), inv_rms64.end());
  }
};

VerifyResult forward_case(Context& ctx, const std::string& what, Shape2 s) {
  VerifyCheck check("rms_norm_forward", what, reduction_path(ctx));
  const Inputs in(s, 1);
  const Tensor x = ctx.make<float>({s.rows, s.n}, DType::kF32, in.x, "verify");
  const Tensor weight = ctx.make<float>({s.n}, DType::kF32, in.weight, "verify");
  const Tensor y = ctx.allocate({s.rows, s.n}, DType::kF32, "verify");
  const Tensor inv_rms = ctx.allocate({s.rows}, DType::kF32, "verify");
  rms_norm_forward(ctx, x, weight, y, inv_rms, kEps, s.weight_offset);
  // inverseSqrt may err by 2 ulp (4u) and halves the sum's relative error; two products follow, one
  // with a weight whose sum with the offset is rounded.
  const double relative = (0.5 * row_depth(s.n) + 9.0) * u;
  check.compare("y", ctx.read<float>(y), in.y,
                [&](size_t i) { return relative * std::abs(in.y[i]); });
  check.compare("inv_rms", ctx.read<float>(inv_rms), in.inv_rms64,
                [&](size_t i) { return relative * in.inv_rms64[i]; });
  return check.result();
}

/// The reference of the backward pass with the magnitudes that its roundings scale with.
struct Backward {
  std::vector<double> grad_x, grad_weight, grad_x_size, grad_weight_size;

  Backward(const Inputs& in, Shape2 s, bool accumulate)
      : grad_x(to_double(in.grad_x)),
        grad_weight(to_double(in.grad_weight)),
        grad_x_size(in.x.size()),
        grad_weight_size(in.weight.size()) {
    cpu::rms_norm_backward(to_double(in.x).data(), to_double(in.weight).data(),
                           to_double(in.inv_rms).data(), to_double(in.grad_y).data(), grad_x.data(),
                           grad_weight.data(), s.rows, s.n, accumulate,
                           static_cast<double>(s.weight_offset));
    for (size_t c = 0; c < in.weight.size(); ++c) {
      grad_weight_size[c] = std::abs(static_cast<double>(in.grad_weight[c]));
    }
    const size_t n = static_cast<size_t>(s.n);
    for (size_t r = 0; r < static_cast<size_t>(s.rows); ++r) {
      const double inv = in.inv_rms[r];
      const auto weight = [&](size_t c) {
        return static_cast<double>(s.weight_offset) + static_cast<double>(in.weight[c]);
      };
      double mean = 0.0;
      for (size_t c = 0; c < n; ++c) {
        const size_t i = r * n + c;
        mean += std::abs(static_cast<double>(in.x[i]) * inv * weight(c) * in.grad_y[i]);
        grad_weight_size[c] += std::abs(static_cast<double>(in.grad_y[i]) * in.x[i] * inv);
      }
      mean /= static_cast<double>(s.n);
      for (size_t c = 0; c < n; ++c) {
        const size_t i = r * n + c;
        const double direct = std::abs(weight(c) * in.grad_y[i]);
        const double across = std::abs(in.x[i] * inv) * mean;
        grad_x_size[i] = inv * (5.0 * direct + (row_depth(s.n) + 11.0) * across);
        if (accumulate) {
          grad_x_size[i] += std::abs(static_cast<double>(in.grad_x[i])) + std::abs(grad_x[i]);
        }
      }
    }
  }
};

VerifyResult backward_case(Context& ctx, const std::string& what, Shape2 s, bool accumulate) {
  VerifyCheck check("rms_norm_backward", what, reduction_path(ctx));
  const Inputs in(s, 2);
  const Backward expected(in, s, accumulate);
  const Tensor x = ctx.make<float>({s.rows, s.n}, DType::kF32, in.x, "verify");
  const Tensor weight = ctx.make<float>({s.n}, DType::kF32, in.weight, "verify");
  const Tensor inv_rms = ctx.make<float>({s.rows}, DType::kF32, in.inv_rms, "verify");
  const Tensor grad_y = ctx.make<float>({s.rows, s.n}, DType::kF32, in.grad_y, "verify");
  const Tensor grad_x = ctx.make<float>({s.rows, s.n}, DType::kF32, in.grad_x, "verify");
  const Tensor grad_weight = ctx.make<float>({s.n}, DType::kF32, in.grad_weight, "verify");
  rms_norm_backward(ctx, x, weight, inv_rms, grad_y, grad_x, accumulate, grad_weight,
                    s.weight_offset);
  const std::vector<float> first = ctx.read<float>(grad_weight);
  check.compare("grad_x", ctx.read<float>(grad_x), expected.grad_x,
                [&](size_t i) { return u * expected.grad_x_size[i]; });
  // Terms of 3 roundings; a slot's rows, a workgroup's slots, then groups by 16 stripes.
  const uint64_t vecs = static_cast<uint64_t>(s.n % 4 == 0 ? s.n / 4 : s.n);
  const double slots = 256.0 / static_cast<double>(std::min<uint64_t>(256, std::bit_ceil(vecs)));
  const double depth =
      3.0 + 8.0 + static_cast<double>(s.rows) / 512.0 + slots + 512.0 / 16.0 + 16.0 + 1.0;
  check.compare("grad_weight", first, expected.grad_weight,
                [&](size_t c) { return depth * u * expected.grad_weight_size[c]; });

  ctx.upload<float>(grad_weight, in.grad_weight);
  rms_norm_backward(ctx, x, weight, inv_rms, grad_y, grad_x, accumulate, grad_weight,
                    s.weight_offset);
  check.require(ctx.read<float>(grad_weight) == first, "grad_weight has the same bits every run");
  return check.result();
}

}  // namespace

void add_norm_cases(const Context&, VerifyLevel level, std::vector<VerifyCase>& cases) {
  std::vector<Shape2> shapes = {{1, 1},     {3, 31},        {33, 33},        {5, 257},
                                {130, 64},  {7, 576},       {2, 4100},       {3, 9001},
                                {300, 128}, {33, 33, 1.0f}, {70, 576, 1.0f}, {3, 9001, 1.0f}};
  if (level == VerifyLevel::kFull) {
    for (Shape2 s : {Shape2{2, 2},
                     {1, 16384},
                     {64, 4096},
                     {5000, 128},
                     {70000, 16},
                     {4, 40961},
                     {1025, 2048},
                     {66000, 257}}) {
      shapes.push_back(s);
    }
  }
  for (Shape2 s : shapes) {
    const std::string what =
        fmt::format("rows {}, n {}, 1e-5..1e5{}", s.rows, s.n,
                    s.weight_offset == 0.0f ? "" : fmt::format(", weight + {}", s.weight_offset));
    cases.push_back(
        {"rms_norm_forward", what, [=](Context& ctx) { return forward_case(ctx, what, s); }});
    for (bool accumulate : {false, true}) {
      const std::string full = what + (accumulate ? ", accumulate" : "");
      cases.push_back({"rms_norm_backward", full,
                       [=](Context& ctx) { return backward_case(ctx, full, s, accumulate); }});
    }
  }
}

}  // namespace wgrad::ops
