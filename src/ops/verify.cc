#include "ops/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ops/verify_families.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

constexpr VerifyFamily kFamilies[] = {
    add_norm_cases,      add_rope_cases,        add_elementwise_cases, add_dropout_cases,
    add_embedding_cases, add_loss_cases,        add_optimizer_cases,   add_matmul_cases,
    add_nf4_cases,       add_exported_cases,    add_linear_cases,      add_attention_cases,
    add_quantise_cases,  add_lora_matrix_cases, add_token_cases,       add_gated_pack_cases,
    add_dora_cases,
};

uint64_t mix(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double unit(uint64_t seed, uint64_t index) {
  return static_cast<double>(mix(seed, index) >> 11) * 0x1p-53;
}

}  // namespace

std::vector<VerifyCase> verify_cases(const Context& ctx, VerifyLevel level) {
  std::vector<VerifyCase> cases;
  for (VerifyFamily family : kFamilies) family(ctx, level, cases);
  return cases;
}

VerifyResult run_case(const VerifyCase& c, Context& ctx) {
  try {
    return c.run(ctx);
  } catch (const Error& error) {
    VerifyResult result{c.kernel, c.what, {}, 0, 0, error.what(), false};
    return result;
  }
}

VerifyCheck::VerifyCheck(std::string kernel, std::string what, std::string path) {
  result_.kernel = std::move(kernel);
  result_.what = std::move(what);
  result_.path = std::move(path);
}

void VerifyCheck::keep(double error, double bound, std::string where) {
  if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
  if (!(error <= bound)) failed_ = true;
  const double ratio = error == 0 ? 0.0 : error / bound;
  if (ratio <= worst_ratio_) return;
  worst_ratio_ = ratio;
  result_.worst_error = error;
  result_.bound = bound;
  result_.where = std::move(where);
}

void VerifyCheck::compare(std::string_view name, std::span<const float> seen,
                          std::span<const double> expected,
                          const std::function<double(size_t)>& bound) {
  if (seen.size() != expected.size()) {
    require(false, fmt::format("{} has {} elements, not {}", name, expected.size(), seen.size()));
    return;
  }
  size_t worst = 0;
  double worst_ratio = -1.0, worst_error = 0.0, worst_bound = 0.0;
  for (size_t i = 0; i < seen.size(); ++i) {
    double error = std::abs(static_cast<double>(seen[i]) - expected[i]);
    if (!std::isfinite(error)) error = std::numeric_limits<double>::infinity();
    const double allowed = bound(i);
    const double ratio = error == 0 ? 0.0 : error / allowed;
    if (ratio <= worst_ratio) continue;
    worst = i;
    worst_ratio = ratio;
    worst_error = error;
    worst_bound = allowed;
  }
  if (seen.empty()) return;
  keep(worst_error, worst_bound,
       fmt::format("{}[{}] = {:.9g}, expected {:.9g}", name, worst, seen[worst], expected[worst]));
}

void VerifyCheck::measure(std::string_view name, double error, double bound) {
  keep(error, bound, std::string(name));
}

void VerifyCheck::require(bool holds, std::string_view condition) {
  if (holds) return;
  keep(std::numeric_limits<double>::infinity(), 0, fmt::format("not so: {}", condition));
}

VerifyResult VerifyCheck::result() const {
  VerifyResult result = result_;
  result.passed = !failed_;
  return result;
}

std::vector<float> verify_uniform(size_t n, uint64_t seed, float limit) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    values[i] = static_cast<float>((2.0 * unit(seed, i) - 1.0) * limit);
  }
  return values;
}

std::vector<float> verify_decades(size_t n, uint64_t seed, double low, double high) {
  // (1 + fraction) 2^exponent lies between the same powers of two as 2^(exponent + fraction), and
  // costs a tenth of it.
  const double first = low * std::log2(10.0), range = (high - low) * std::log2(10.0);
  const double limit = std::pow(10.0, high);
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t bits = mix(seed, i);
    const double power = first + range * (static_cast<double>(bits >> 11) * 0x1p-53);
    const double exponent = std::floor(power);
    const auto biased = static_cast<uint64_t>(static_cast<int64_t>(exponent) + 1023);
    const double magnitude =
        std::min((1.0 + (power - exponent)) * std::bit_cast<double>(biased << 52), limit);
    values[i] = static_cast<float>((bits & 1) != 0 ? -magnitude : magnitude);
  }
  return values;
}

std::vector<double> to_double(std::span<const float> values) {
  return {values.begin(), values.end()};
}

std::string reduction_path(const Context& ctx) {
  if (ctx.modelled() == DeviceKind::kCpu) return "cpu";
  const gpu::Features& f = ctx.features();
  return f.subgroups && f.subgroup_min_size == f.subgroup_max_size ? "subgroups" : "core";
}

}  // namespace wgrad::ops
