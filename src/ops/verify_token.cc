#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/activation.h"
#include "cpu/rms_norm.h"
#include "cpu/rope.h"
#include "ops/largest.h"
#include "ops/linear_token.h"
#include "ops/matmul_f16.h"
#include "ops/rope_append.h"
#include "ops/verify_activation.h"
#include "ops/verify_families.h"
#include "ops/weight.h"

namespace wgrad::ops {
namespace {

constexpr double u = kF32Rounding;
constexpr float kEps = 1e-5f;

struct TokenCase {
  WeightFormat format = WeightFormat::kF32;
  int64_t in = 0;
  std::vector<int64_t> out;
  bool norm = false, bias = false, accumulate = false;
  float norm_add = 0.0f;
};

std::string describe(const TokenCase& c) {
  static constexpr const char* kNames[] = {"f32", "f16", "f16 blocks", "nf4"};
  return fmt::format("{} weights, {} -> {}{}{}{}", kNames[static_cast<size_t>(c.format)], c.in,
                     fmt::join(c.out, " and "), c.norm ? ", normed" : "", c.bias ? ", bias" : "",
                     c.accumulate ? ", adding" : "");
}

/// Values that f16 holds exactly, so that every format multiplies the same.
std::vector<float> exact_weights(int64_t n, uint64_t seed) {
  std::vector<float> values = verify_uniform(static_cast<size_t>(n), seed);
  for (float& v : values) v = std::nearbyint(v * 256.0f) / 1024.0f;
  return values;
}

Tensor upload(Context& ctx, Shape shape, const std::vector<float>& values) {
  return ctx.make(std::move(shape), DType::kF32, std::span<const float>(values), "verify");
}

/// x, the layers that it goes through and what comes out, in double and with its bound.
struct TokenInputs {
  std::vector<float> x, norm;
  std::vector<std::vector<float>> w, bias, y;
  std::vector<Weight> weights;
  std::vector<TokenLinear> layers;
  Tensor memory;
  std::vector<std::vector<double>> expected, bound;

  TokenInputs(Context& ctx, const TokenCase& c) {
    x = verify_uniform(static_cast<size_t>(c.in), 31, 3.0f);
    norm = verify_uniform(x.size(), 32);
    std::vector<double> in = to_double(x);
    double norm_error = 0;
    if (c.norm) {
      double inv_rms = 0;
      cpu::rms_norm_forward(in.data(), to_double(norm).data(), in.data(), &inv_rms, 1, c.in,
                            double{kEps}, static_cast<double>(c.norm_add));
      // The mean's additions halve in the root; the root may be loose by two units in the last
      // place, and three products round.
      norm_error = (static_cast<double>(c.in) / 2 + 10.0) * u;
    }
    int64_t all = 0;
    for (const int64_t out : c.out) all += out;
    memory = ctx.allocate({all}, DType::kF32, "verify");
    weights.resize(c.out.size());
    int64_t begin = 0;
    for (size_t m = 0; m < c.out.size(); ++m) {
      const int64_t out = c.out[m];
      w.push_back(exact_weights(out * c.in, 33 + m));
      bias.push_back(verify_uniform(static_cast<size_t>(out), 43 + m));
      y.push_back(verify_uniform(static_cast<size_t>(out), 53 + m));
      weights[m] = load_weight_as(ctx, c.format, "weight", out, c.in,
                                  [&](int64_t first, int64_t last, std::span<float> rows) {
                                    std::copy(w[m].begin() + first * c.in,
                                              w[m].begin() + last * c.in, rows.begin());
                                  });
      const Tensor part = memory.flat(begin, out).reshape({1, out});
      begin += out;
      copy(ctx, upload(ctx, {1, out}, y[m]), part);
      layers.push_back({&weights[m], c.bias ? upload(ctx, {out}, bias[m]) : Tensor(), part});
      add_expected(c, in, m, norm_error);
    }
  }

  void add_expected(const TokenCase& c, const std::vector<double>& in, size_t m,
                    double norm_error) {
    std::vector<double> values, bounds;
    for (size_t row = 0; row < bias[m].size(); ++row) {
      double sum = 0, magnitude = 0;
      for (size_t k = 0; k < in.size(); ++k) {
        const double term = static_cast<double>(w[m][row * in.size() + k]) * in[k];
        sum += term;
        magnitude += std::abs(term);
      }
      double bound = ((static_cast<double>(in.size()) + 8) * u + norm_error) * magnitude;
      for (const auto& [used, added] :
           {std::pair{c.bias, bias[m][row]}, std::pair{c.accumulate, y[m][row]}}) {
        if (!used) continue;
        sum += static_cast<double>(added);
        bound += u * (std::abs(sum) + bound);
      }
      values.push_back(sum);
      bounds.push_back(bound);
    }
    expected.push_back(std::move(values));
    bound.push_back(std::move(bounds));
  }

  MatvecNorm norm_on(Context& ctx, const TokenCase& c) const {
    return c.norm ? MatvecNorm{upload(ctx, {c.in}, norm), kEps, c.norm_add} : MatvecNorm{};
  }
};

VerifyResult run_linears(Context& ctx, const TokenCase& c) {
  const TokenInputs in(ctx, c);
  VerifyCheck check("token_linears", describe(c), "core");
  token_linears(ctx, upload(ctx, {1, c.in}, in.x), in.norm_on(ctx, c), in.layers, c.accumulate);
  for (size_t m = 0; m < c.out.size(); ++m) {
    check.compare(fmt::format("y{}", m), ctx.read<float>(in.layers[m].y), in.expected[m],
                  [&](size_t i) { return in.bound[m][i]; });
  }
  return check.result();
}

VerifyResult run_gated(Context& ctx, const TokenCase& c, Activation activation) {
  const TokenInputs in(ctx, c);
  VerifyCheck check("token_gated", fmt::format("{}, {}", activation_name(activation), describe(c)),
                    "core");
  token_gated(ctx, activation, upload(ctx, {1, c.in}, in.x), in.norm_on(ctx, c), in.layers[0],
              in.layers[1]);
  std::vector<double> expected(in.expected[0].size());
  cpu::gated_forward(activation, in.expected[0].data(), in.expected[1].data(), expected.data(),
                     static_cast<int64_t>(expected.size()));
  // No activation is steeper than this.
  constexpr double kSlope = 1.2;
  check.compare("y", ctx.read<float>(in.layers[0].y), expected, [&](size_t i) {
    const double gate = in.expected[0][i], up = in.expected[1][i];
    const double gate_error = kSlope * in.bound[0][i] + activation_bound(activation, gate);
    const double activated = std::abs(gate) + gate_error;  // at most
    return gate_error * std::abs(up) + activated * in.bound[1][i] +
           2 * u * activated * std::abs(up);
  });
  return check.result();
}

VerifyResult run_expand(Context& ctx, const std::vector<int64_t>& rows, int64_t rank) {
  constexpr float kScale = 0.75f;
  VerifyCheck check("token_expand", fmt::format("rank {} -> {}", rank, fmt::join(rows, " and ")),
                    "core");
  const auto terms = static_cast<int64_t>(rows.size());
  const std::vector<float> xa = verify_uniform(static_cast<size_t>(terms * rank), 61);
  const Tensor small = upload(ctx, {terms, rank}, xa);
  int64_t all = 0;
  for (const int64_t n : rows) all += n;
  const std::vector<float> y0 = verify_uniform(static_cast<size_t>(all), 62);
  const Tensor y = upload(ctx, {all}, y0);
  std::vector<TokenExpand> calls;
  std::vector<double> expected = to_double(y0), bounds;
  int64_t begin = 0;
  for (int64_t t = 0; t < terms; ++t) {
    const int64_t n = rows[static_cast<size_t>(t)];
    const std::vector<float> b =
        verify_uniform(static_cast<size_t>(n * rank), 63 + static_cast<uint64_t>(t));
    for (int64_t row = 0; row < n; ++row) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < rank; ++i) {
        const double term = static_cast<double>(b[static_cast<size_t>(row * rank + i)]) *
                            static_cast<double>(xa[static_cast<size_t>(t * rank + i)]);
        sum += term;
        magnitude += std::abs(term);
      }
      double& value = expected[static_cast<size_t>(begin + row)];
      value += static_cast<double>(kScale) * sum;
      bounds.push_back((static_cast<double>(rank) + 3) * u * magnitude + 2 * u * std::abs(value));
    }
    calls.push_back(
        {small.rows(t, t + 1), upload(ctx, {n, rank}, b), y.flat(begin, n).reshape({1, n})});
    begin += n;
  }
  token_expand(ctx, calls, kScale);
  check.compare("y", ctx.read<float>(y), expected, [&](size_t i) { return bounds[i]; });
  return check.result();
}

struct AppendCase {
  int64_t heads, kv_heads, head_dim, rotary_dim;
  enum class Norm : uint8_t { kNone, kHead, kWhole } norm;
};

VerifyResult run_append(Context& ctx, const AppendCase& c) {
  VerifyCheck check("rope_append",
                    fmt::format("{} and {} heads of {}, {} turned{}", c.heads, c.kv_heads,
                                c.head_dim, c.rotary_dim,
                                c.norm == AppendCase::Norm::kNone   ? ""
                                : c.norm == AppendCase::Norm::kHead ? ", normed"
                                                                    : ", normed together"),
                    "core");
  const bool normed = c.norm != AppendCase::Norm::kNone;
  const bool whole = c.norm == AppendCase::Norm::kWhole;
  constexpr uint32_t kPosition = 1234, kPositions = 1300;
  constexpr float kAdd = 1.0f;
  const int64_t q_size = c.heads * c.head_dim, k_size = c.kv_heads * c.head_dim;
  const std::vector<float> values = verify_uniform(static_cast<size_t>(q_size + 2 * k_size), 71);
  const Tensor memory = upload(ctx, {q_size + 2 * k_size}, values);
  const auto norm_of = [&](uint64_t seed, int64_t heads) {
    return verify_uniform(static_cast<size_t>(c.head_dim * (whole ? heads : 1)), seed);
  };
  const std::vector<float> q_norm = norm_of(72, c.heads), k_norm = norm_of(73, c.kv_heads);
  const std::vector<double> frequencies = cpu::rope_inv_freq(10000.0, c.rotary_dim);
  const std::vector<float> table = cpu::rope_table<float>(frequencies, kPositions);
  const std::vector<double> exact = cpu::rope_table<double>(frequencies, kPositions);
  const uint32_t position = kPosition;
  const Tensor keys = ctx.allocate_zeroed({3, k_size}, DType::kF32, "verify");
  const Tensor cached = ctx.allocate_zeroed({3, k_size}, DType::kF32, "verify");
  RopeAppend call;
  call.q = memory.flat(0, q_size).reshape({1, q_size});
  call.k = memory.flat(q_size, k_size).reshape({1, k_size});
  call.v = memory.flat(q_size + k_size, k_size).reshape({1, k_size});
  call.position = ctx.make<uint32_t>({1}, DType::kU32, std::span(&position, 1), "verify");
  call.turned = ctx.allocate({1, q_size}, DType::kF32, "verify");
  if (c.rotary_dim > 0) call.table = upload(ctx, {kPositions, c.rotary_dim / 2, 2}, table);
  call.keys = keys, call.values = cached, call.row = 1;
  call.head_dim = c.head_dim, call.rotary_dim = c.rotary_dim;
  if (normed) {
    const auto elements = [](const std::vector<float>& v) {
      return static_cast<int64_t>(v.size());
    };
    call.q_norm = {upload(ctx, {elements(q_norm)}, q_norm), kEps, kAdd};
    call.k_norm = {upload(ctx, {elements(k_norm)}, k_norm), kEps, kAdd};
  }
  rope_append(ctx, call);

  const auto compare = [&](std::string_view name, std::span<const float> seen, int64_t begin,
                           int64_t heads, const std::vector<float>& norm) {
    const size_t n = seen.size(), dim = static_cast<size_t>(c.head_dim);
    std::vector<double> x(n);
    for (size_t i = 0; i < n; ++i) x[i] = values[static_cast<size_t>(begin) + i];
    std::vector<double> inv_rms(static_cast<size_t>(heads));
    if (normed) {
      cpu::rms_norm_forward(x.data(), to_double(norm).data(), x.data(), inv_rms.data(),
                            whole ? 1 : heads, whole ? heads * c.head_dim : c.head_dim,
                            double{kEps}, double{kAdd});
    }
    const std::vector<double> before = x;
    cpu::rope_apply(x.data(), x.data(), &position, exact.data(), 1, heads, c.head_dim, c.rotary_dim,
                    cpu::RopePairing::kHalfSplit, false);
    const double summed = static_cast<double>(whole ? n : dim);
    const double relative = normed ? (summed / 2 + 10) * u : 0.0;
    const size_t half = static_cast<size_t>(c.rotary_dim) / 2;
    check.compare(name, seen, x, [&](size_t i) {
      const size_t e = i % dim;
      if (e >= 2 * half) return relative * std::abs(x[i]);
      const size_t other = e < half ? i + half : i - half;
      return (3 * u + relative) * (std::abs(before[i]) + std::abs(before[other]));
    });
  };
  compare("q", ctx.read<float>(call.turned), 0, c.heads, q_norm);
  const std::vector<float> all_keys = ctx.read<float>(keys), all_values = ctx.read<float>(cached);
  const auto row = static_cast<size_t>(k_size);
  compare("keys", std::span(all_keys).subspan(row, row), q_size, c.kv_heads, k_norm);
  for (size_t i = 0; i < 3 * row; ++i) {
    const bool own = i >= row && i < 2 * row;
    const size_t at = static_cast<size_t>(q_size + k_size) + i - row;
    check.require(all_values[i] == (own ? values[at] : 0.0f) && (own || all_keys[i] == 0.0f),
                  "values are copied, and the cache's other rows stay as they are");
  }
  return check.result();
}

/// Values with two equal largest ones at `at`, and one that is not finite where `strange`.
VerifyResult run_largest(Context& ctx, int64_t n, int64_t at, bool strange) {
  VerifyCheck check("largest", fmt::format("{} values{}", n, strange ? ", one of them inf" : ""),
                    ctx.modelled() == DeviceKind::kCpu ? "cpu" : "core");
  std::vector<float> values = verify_decades(static_cast<size_t>(n), 81);
  for (float& v : values) v = -std::abs(v);
  values[static_cast<size_t>(at)] = values.back() = -1e-7f;
  if (strange) values.front() = std::numeric_limits<float>::infinity();
  const cpu::Largest seen = largest(ctx, upload(ctx, {n}, values));
  check.require(seen.index == at, fmt::format("the largest stands first at {}", at));
  check.require(seen.finite == !strange, "what is not finite is noticed");
  const std::vector<float> none(static_cast<size_t>(n), std::numeric_limits<float>::quiet_NaN());
  check.require(largest(ctx, upload(ctx, {n}, none)).index == -1, "no finite value, no index");
  return check.result();
}

}  // namespace

void add_token_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases) {
  for (const auto& [n, at] :
       {std::pair<int64_t, int64_t>{2, 1}, {257, 255}, {20000, 777}, {128257, 128255}}) {
    for (const bool strange : {false, true}) {
      cases.push_back({"largest", fmt::format("{} values{}", n, strange ? ", one of them inf" : ""),
                       [=, n = n, at = at](Context& x) { return run_largest(x, n, at, strange); }});
    }
  }
  if (ctx.modelled() != DeviceKind::kGpu) return;
  std::vector<TokenCase> shapes = {
      {.in = 64, .out = {36}},
      {.in = 264, .out = {40}, .norm = true, .accumulate = true},
      {.in = 320, .out = {96, 32, 32}, .norm = true},
      {.in = 96, .out = {68, 4}, .bias = true},
      {.in = 1032, .out = {100, 44}, .norm = true, .accumulate = true, .norm_add = 1.0f}};
  if (level == VerifyLevel::kFull) {
    shapes.push_back({.in = 4096, .out = {4096, 1024, 1024}, .norm = true});
    shapes.push_back({.in = 14336, .out = {4096}, .accumulate = true});
    shapes.push_back({.in = 2048, .out = {8192, 8200}, .norm = true});
  }
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kF16Blocks}) {
    if (format == WeightFormat::kF16Blocks && !has_f16_product(ctx)) continue;
    for (TokenCase c : shapes) {
      c.format = format;
      cases.push_back(
          {"token_linears", describe(c), [c](Context& x) { return run_linears(x, c); }});
    }
    for (const Activation activation : kActivations) {
      TokenCase c{.format = format, .in = 328, .out = {76, 76}, .norm = true};
      cases.push_back({"token_gated",
                       fmt::format("{}, {}", activation_name(activation), describe(c)),
                       [=](Context& x) { return run_gated(x, c, activation); }});
      if (level != VerifyLevel::kFull) continue;
      c.in = 2048, c.out = {8192, 8192};
      cases.push_back({"token_gated",
                       fmt::format("{}, {}", activation_name(activation), describe(c)),
                       [=](Context& x) { return run_gated(x, c, activation); }});
    }
  }
  for (const auto& rows : {std::vector<int64_t>{300}, {64, 33}, {257, 1, 40}}) {
    for (const int64_t rank : {1, 8, 33}) {
      cases.push_back({"token_expand", fmt::format("rank {} -> {}", rank, fmt::join(rows, " and ")),
                       [=](Context& x) { return run_expand(x, rows, rank); }});
    }
  }
  using Norm = AppendCase::Norm;
  for (const AppendCase& c :
       {AppendCase{4, 2, 64, 64, Norm::kNone}, AppendCase{3, 1, 128, 128, Norm::kHead},
        AppendCase{5, 5, 10, 4, Norm::kHead}, AppendCase{8, 2, 160, 40, Norm::kNone},
        AppendCase{3, 1, 70, 70, Norm::kWhole}, AppendCase{3, 2, 64, 0, Norm::kNone}}) {
    cases.push_back({"rope_append",
                     fmt::format("{} and {} heads of {}", c.heads, c.kv_heads, c.head_dim),
                     [=](Context& x) { return run_append(x, c); }});
  }
}

}  // namespace wgrad::ops
