#include "ops/verify_attention.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "cpu/attention.h"

namespace wgrad::ops {
namespace {

cpu::AttentionShape cpu_shape(const AttentionCase& c) {
  cpu::AttentionShape s;
  s.queries = c.query_count();
  s.keys = c.keys();
  s.query_heads = c.shape.heads;
  s.kv_heads = c.shape.kv_heads;
  s.head_dim = c.shape.head_dim;
  s.query_offset = c.shape.query_offset;
  s.window = c.shape.window;
  s.scale = static_cast<double>(c.shape.scale);
  s.soft_cap = static_cast<double>(c.shape.soft_cap);
  return s;
}

/// Follows the roundings of one case. The arithmetic is that of the equations: s = scale q k^T,
/// capped, p = exp(s - logsumexp), out = p v; grad_s = p (grad_out v^T - delta) times the cap's
/// slope.
class Bounder {
 public:
  Bounder(const AttentionCase& c, const AttentionInputs& in, const AttentionRounding& rounding,
          AttentionReference& r)
      : c_(c),
        in_(in),
        s_(c.shape),
        u_(rounding.sums),
        h_(rounding.operands),
        r_(r),
        queries_(c.query_count()) {}

  void forward() {
    r_.bound.out.assign(r_.out.size(), 0.0);
    r_.bound.logsumexp.assign(r_.logsumexp.size(), 0.0);
    for (int64_t i = 0; i < queries_; ++i) {
      for (int64_t h = 0; h < s_.heads; ++h) forward(i, h);
    }
  }

  void backward() {
    r_.bound.grad_q.assign(r_.grad_q.size(), 0.0);
    r_.bound.grad_k.assign(r_.grad_k.size(), 0.0);
    r_.bound.grad_v.assign(r_.grad_v.size(), 0.0);
    for (int64_t i = 0; i < queries_; ++i) {
      for (int64_t h = 0; h < s_.heads; ++h) backward(i, h);
    }
  }

 private:
  struct Dot {
    double value, magnitude;
  };
  Dot dot(const float* a, const float* b) const {
    Dot d{0, 0};
    for (int64_t e = 0; e < s_.head_dim; ++e) {
      const double x = static_cast<double>(a[e]) * static_cast<double>(b[e]);
      d.value += x;
      d.magnitude += std::abs(x);
    }
    return d;
  }
  /// |computed - exact| of a sum over head_dim with terms of this total magnitude.
  double dot_error(double magnitude) const {
    return (u_ * static_cast<double>(s_.head_dim + 2) + 2 * h_) * magnitude;
  }
  std::pair<int64_t, int64_t> seen_keys(int64_t i) const {
    const int64_t end = i + s_.query_offset + 1;
    int64_t begin = in_.row_begin[static_cast<size_t>(i)];
    if (s_.window > 0) begin = std::max(begin, end - s_.window);
    return {begin, end};
  }
  size_t q_at(int64_t i, int64_t h) const {
    return static_cast<size_t>((i * s_.heads + h) * s_.head_dim);
  }
  size_t k_at(int64_t j, int64_t h) const {
    return static_cast<size_t>((j * s_.kv_heads + h / (s_.heads / s_.kv_heads)) * s_.head_dim);
  }

  struct Score {
    double value, error;        ///< natural logarithm's units
    double slope, slope_error;  ///< of the cap
  };
  Score score(int64_t i, int64_t h, int64_t j) const {
    const double scale = std::abs(static_cast<double>(s_.scale));
    const Dot d = dot(&in_.q[q_at(i, h)], &in_.k[k_at(j, h)]);
    // Rounded again: the scale's constant, the product with it and the difference to the maximum.
    const Score score{d.value * static_cast<double>(s_.scale),
                      scale * (dot_error(d.magnitude) + 4 * u_ * std::abs(d.value)), 1.0, 0.0};
    return s_.soft_cap > 0 ? capped(score) : score;
  }
  /// A cap lets no error grow. Its argument's factor and division err by 8 roundings, its tanh by
  /// 20 (lib_tanh.wgsl) and its product by 4, all relative, as the difference that follows.
  Score capped(const Score& s) const {
    const double cap = static_cast<double>(s_.soft_cap), t = std::tanh(s.value / cap);
    const double error = s.error + 36 * u_ * std::abs(cap * t);
    // The slope (1 - t) (1 + t) from a t that is off by error / cap.
    const double t_error = error / cap + 8 * u_;
    return {cap * t, error, (1.0 - t) * (1.0 + t), 2.0 * t_error + t_error * t_error};
  }
  /// Relative error of exp(x) computed as exp2 with an argument that is off by `error`. WGSL allows
  /// exp2 (3 + 2 |x|) units in the last place, which are 2 u each.
  double exp_error(double x, double error) const {
    return std::expm1(error) + 2 * u_ * (3 + 2 * 1.4427 * std::abs(x));
  }

  void forward(int64_t i, int64_t h) {
    const auto [begin, end] = seen_keys(i);
    const size_t row = static_cast<size_t>(i * s_.heads + h);
    const double lse = r_.logsumexp[row];
    double top = -1e300, top_error = 0;
    for (int64_t j = begin; j < end; ++j) {
      const Score s = score(i, h, j);
      top = std::max(top, s.value);
      top_error = std::max(top_error, u_ * std::abs(s.value));
    }
    // Sums over the keys, each part rescaled at most once a tile.
    const double n = static_cast<double>(end - begin) + 16;
    double total_error = n * u_;
    std::vector<double> p, error;
    for (int64_t j = begin; j < end; ++j) {
      const Score s = score(i, h, j);
      p.push_back(std::exp(s.value - lse));
      error.push_back(exp_error(s.value - top, s.error + 4 * top_error));
      total_error += p.back() * error.back();
    }
    const size_t at = q_at(i, h);
    for (int64_t j = begin; j < end; ++j) {
      const size_t index = static_cast<size_t>(j - begin);
      const double relative = error[index] + total_error + n * u_ + 4 * u_ + 2 * h_;
      // Weights below f16's normal range keep an absolute error of its smallest step.
      const double absolute = h_ > 0 ? 0x1p-24 : 0.0;
      for (int64_t e = 0; e < s_.head_dim; ++e) {
        r_.bound.out[at + static_cast<size_t>(e)] +=
            (p[index] * relative + absolute) *
            std::abs(static_cast<double>(in_.v[k_at(j, h) + static_cast<size_t>(e)]));
      }
    }
    // WGSL allows log2 an absolute error of 2^-21 near 1, 3 units in the last place elsewhere.
    r_.bound.logsumexp[row] = total_error + 0x1p-21 + 8 * u_ * (std::abs(lse) + std::abs(top));
  }

  void backward(int64_t i, int64_t h) {
    const auto [begin, end] = seen_keys(i);
    const double scale = std::abs(static_cast<double>(s_.scale));
    const size_t row = static_cast<size_t>(i * s_.heads + h), at = q_at(i, h);
    const double lse = r_.logsumexp[row];
    const double lse_error = r_.bound.logsumexp[row] + 4 * u_ * std::abs(lse);
    double delta = 0, delta_magnitude = 0, delta_error = 0;
    for (size_t e = at; e < at + static_cast<size_t>(s_.head_dim); ++e) {
      const double g = static_cast<double>(in_.grad_out[e]);
      delta += g * r_.out[e];
      delta_magnitude += std::abs(g * r_.out[e]);
      delta_error += std::abs(g) * r_.bound.out[e];
    }
    delta_error += dot_error(delta_magnitude);
    // A key's sums run over all queries of its group's heads.
    const double n = static_cast<double>(std::max(end - begin, keys_sum_length())) + 4;
    for (int64_t j = begin; j < end; ++j) {
      const size_t kv = k_at(j, h);
      const Score s = score(i, h, j);
      const double p = std::exp(s.value - lse);
      const double p_error = p * exp_error(s.value - lse, s.error + lse_error);
      const Dot dp = dot(&in_.grad_out[at], &in_.v[kv]);
      const double difference = dp.value - delta;
      const double before_cap = p_error * std::abs(difference) +
                                (p + p_error) * (dot_error(dp.magnitude) + delta_error +
                                                 4 * u_ * (std::abs(dp.value) + std::abs(delta)));
      const double grad_s_error =
          before_cap * (s.slope + s.slope_error) + p * std::abs(difference) * s.slope_error;
      const double p_sum = p_error + p * (n * u_ + 2 * h_) + (h_ > 0 ? 0x1p-24 : 0.0);
      const double grad_s_sum = grad_s_error + p * std::abs(difference) * (n * u_ + 2 * h_) +
                                h_ * 0x1p-12 * (dp.magnitude + delta_magnitude);
      for (size_t e = 0; e < static_cast<size_t>(s_.head_dim); ++e) {
        const auto absolute = [](float x) { return std::abs(static_cast<double>(x)); };
        r_.bound.grad_q[at + e] += scale * grad_s_sum * absolute(in_.k[kv + e]);
        r_.bound.grad_k[kv + e] += scale * grad_s_sum * absolute(in_.q[at + e]);
        r_.bound.grad_v[kv + e] += p_sum * absolute(in_.grad_out[at + e]);
      }
    }
  }
  int64_t keys_sum_length() const {
    return *std::max_element(c_.rows.begin(), c_.rows.end()) * (s_.heads / s_.kv_heads);
  }

  const AttentionCase& c_;
  const AttentionInputs& in_;
  const AttentionShape& s_;
  double u_, h_;
  AttentionReference& r_;
  int64_t queries_;
};

}  // namespace

int64_t AttentionCase::keys() const {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

std::string AttentionCase::describe() const {
  std::string text = fmt::format("rows {}, heads {}/{}, head_dim {}", fmt::join(rows, "+"),
                                 shape.heads, shape.kv_heads, shape.head_dim);
  if (queries > 0) text += fmt::format(", last {} query", queries);
  if (shape.window > 0) text += fmt::format(", window {}", shape.window);
  if (shape.soft_cap > 0) text += fmt::format(", cap {}", shape.soft_cap);
  if (magnitude != 1.0f) text += fmt::format(", q k to {}", magnitude);
  if (shape.kept_scores_limit != AttentionShape().kept_scores_limit) {
    text += fmt::format(", keeps {} bytes", shape.kept_scores_limit);
  }
  if (grad_magnitude != 1.0f) text += fmt::format(", gradient to {}", grad_magnitude);
  return text;
}

AttentionInputs attention_inputs(const AttentionCase& c) {
  const size_t q_size = static_cast<size_t>(c.query_count() * c.shape.heads * c.shape.head_dim);
  const size_t k_size = static_cast<size_t>(c.keys() * c.shape.kv_heads * c.shape.head_dim);
  AttentionInputs in;
  in.q = verify_uniform(q_size, c.seed, c.magnitude);
  in.k = verify_uniform(k_size, c.seed + 1, c.magnitude);
  in.v = verify_uniform(k_size, c.seed + 2);
  in.grad_out = verify_uniform(q_size, c.seed + 3, c.grad_magnitude);
  int64_t begin = 0;
  for (int64_t length : c.rows) {
    for (int64_t t = 0; t < length; ++t) {
      in.row_begin.push_back(static_cast<uint32_t>(begin));
      in.row_end.push_back(static_cast<uint32_t>(begin + length));
    }
    begin += length;
  }
  in.row_begin.erase(in.row_begin.begin(), in.row_begin.end() - c.query_count());
  return in;
}

AttentionOutputs run_attention(Context& ctx, const AttentionCase& c, const AttentionInputs& in) {
  const AttentionShape& s = c.shape;
  const Shape q_shape{c.query_count(), s.heads * s.head_dim};
  const Shape k_shape{c.keys(), s.kv_heads * s.head_dim};
  const auto f32 = [&](const Shape& shape, const std::vector<float>& values) {
    return ctx.make<float>(shape, DType::kF32, values, "verify/attention");
  };
  const auto result = [&](const Shape& shape) {
    return ctx.allocate(shape, DType::kF32, "verify/attention");
  };
  const Tensor q = f32(q_shape, in.q), k = f32(k_shape, in.k), v = f32(k_shape, in.v);
  const Tensor row_begin =
      ctx.make<uint32_t>({c.query_count()}, DType::kU32, in.row_begin, "verify/attention");
  const Tensor out = result(q_shape), lse = result({c.query_count(), s.heads});
  const AttentionSaved saved = attention_forward(ctx, s, q, k, v, row_begin, out, lse);
  AttentionOutputs o;
  o.out = ctx.read<float>(out);
  o.logsumexp = ctx.read<float>(lse);
  if (c.queries > 0) return o;
  const Tensor row_end =
      ctx.make<uint32_t>({c.keys()}, DType::kU32, in.row_end, "verify/attention");
  const Tensor grad_out = f32(q_shape, in.grad_out);
  const Tensor grad_q = result(q_shape), grad_k = result(k_shape), grad_v = result(k_shape);
  attention_backward(ctx, s, saved, row_begin, row_end, out, lse, grad_out, grad_q, grad_k, grad_v);
  o.grad_q = ctx.read<float>(grad_q);
  o.grad_k = ctx.read<float>(grad_k);
  o.grad_v = ctx.read<float>(grad_v);
  return o;
}

AttentionReference attention_reference(const AttentionCase& c, const AttentionInputs& in,
                                       const AttentionRounding& rounding) {
  const cpu::AttentionShape shape = cpu_shape(c);
  const auto q = to_double(in.q), k = to_double(in.k), v = to_double(in.v);
  AttentionReference r;
  r.out.resize(q.size());
  r.logsumexp.resize(static_cast<size_t>(shape.queries * shape.query_heads));
  cpu::attention_forward<double>(shape, q.data(), k.data(), v.data(), in.row_begin.data(),
                                 r.out.data(), r.logsumexp.data());
  Bounder bounder(c, in, rounding, r);
  bounder.forward();
  if (c.queries > 0) return r;
  const auto grad_out = to_double(in.grad_out);
  r.grad_q.resize(q.size());
  r.grad_k.resize(k.size());
  r.grad_v.resize(k.size());
  cpu::attention_backward<double>(shape, q.data(), k.data(), v.data(), in.row_begin.data(),
                                  r.out.data(), r.logsumexp.data(), grad_out.data(),
                                  r.grad_q.data(), r.grad_k.data(), r.grad_v.data());
  bounder.backward();
  return r;
}

VerifyResult check_attention(const AttentionCase& c, const AttentionReference& reference,
                             const AttentionOutputs& seen, const std::string& path) {
  VerifyCheck check("attention", c.describe(), path);
  const auto compare = [&](std::string_view name, const std::vector<float>& values,
                           const std::vector<double>& expected, const std::vector<double>& bound) {
    check.compare(name, values, expected, [&](size_t i) { return bound[i] + 1e-30; });
  };
  compare("out", seen.out, reference.out, reference.bound.out);
  compare("logsumexp", seen.logsumexp, reference.logsumexp, reference.bound.logsumexp);
  if (c.queries == 0) {
    compare("grad_q", seen.grad_q, reference.grad_q, reference.bound.grad_q);
    compare("grad_k", seen.grad_k, reference.grad_k, reference.bound.grad_k);
    compare("grad_v", seen.grad_v, reference.grad_v, reference.bound.grad_v);
  }
  return check.result();
}

}  // namespace wgrad::ops
