#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cpu/activation.h"
#include "ops/f16_blocks.h"
#include "ops/gated_pack.h"
#include "ops/verify_activation.h"
#include "ops/verify_families.h"
#include "ops/verify_product.h"

namespace wgrad::ops {
namespace {

/// Rows of very different magnitude, the activation's bend well covered.
std::vector<float> spread(int64_t rows, int64_t columns, uint64_t seed, double decades) {
  std::vector<float> values = verify_uniform(static_cast<size_t>(rows * columns), seed, 20.0f);
  for (int64_t r = 0; r < rows; ++r) {
    const double place = static_cast<double>(r % 5) / 2.0 - 1.0;
    const auto factor = static_cast<float>(std::pow(10.0, decades * place));
    for (int64_t c = 0; c < columns; ++c) values[static_cast<size_t>(r * columns + c)] *= factor;
  }
  return values;
}

/// The values of halves and the scales of their rows against `expected`, each element with the
/// error `of_value` that it may have before it is rounded to f16.
class HalvesCheck {
 public:
  HalvesCheck(VerifyCheck& check, int64_t rows, int64_t columns)
      : check_(check), rows_(rows), columns_(columns) {}

  template <typename Place>
  void compare(std::string_view name, const std::vector<uint16_t>& halves,
               const std::vector<float>& scales, const std::vector<double>& expected,
               const std::vector<double>& of_value, const Place& place) {
    std::vector<float> seen;
    std::vector<double> bounds;
    bool powers = true;
    for (int64_t r = 0; r < rows_; ++r) {
      const auto begin = expected.begin() + r * columns_;
      double largest = 0.0;
      for (int64_t c = 0; c < columns_; ++c) largest = std::max(largest, std::abs(begin[c]));
      const double scale = static_cast<double>(scales[static_cast<size_t>(r)]);
      powers = powers && std::ldexp(1.0, std::ilogb(scale)) == scale;
      for (int64_t c = 0; c < columns_; ++c) {
        const double value = half_value(halves[static_cast<size_t>(place(r, c))]) * scale;
        seen.push_back(static_cast<float>(value));
        const double error = of_value[static_cast<size_t>(r * columns_ + c)];
        // Rounding may be towards zero; what falls below f16's normal numbers may become 0.
        bounds.push_back(error + 0x1p-10 * (std::abs(begin[c]) + error) + 0x1p-28 * largest +
                         2e-38);
      }
    }
    check_.compare(name, seen, expected, [&](size_t i) { return bounds[i]; });
    check_.require(powers, fmt::format("{}: every factor is a power of two", name));
  }

 private:
  VerifyCheck& check_;
  int64_t rows_, columns_;
};

std::vector<uint16_t> blocks_of(Context& ctx, const F16Operand& operand) {
  return ctx.read<uint16_t>(operand.blocks.flat(0, f16_blocks_size(operand.rows, operand.columns)));
}

bool padding_is_zero(const std::vector<uint16_t>& halves, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < f16_padded(rows); ++r) {
    for (int64_t c = r < rows ? columns : 0; c < f16_padded(columns); ++c) {
      if (halves[static_cast<size_t>(f16_blocks_index(r, c, columns))] != 0) return false;
    }
  }
  return true;
}

VerifyResult run_gated_pack(Context& ctx, Activation activation, int64_t rows, int64_t columns) {
  const auto gate = spread(rows, columns, 91, 3.0), up = spread(rows, columns, 92, 6.0),
             grad = spread(rows, columns, 93, 6.0);
  const auto upload = [&](const std::vector<float>& v) {
    return ctx.make({rows, columns}, DType::kF32, std::span<const float>(v), "verify");
  };
  VerifyCheck check(
      "gated_pack",
      fmt::format("{}, {} x {}, 1e-6..1e6", activation_name(activation), rows, columns), "core");
  HalvesCheck halves_check(check, rows, columns);
  const auto in_rows = [&](int64_t r, int64_t c) { return r * columns + c; };
  const auto in_blocks = [&](int64_t r, int64_t c) { return f16_blocks_index(r, c, columns); };
  const auto n = static_cast<size_t>(rows * columns);

  GatedHalves halves;
  const F16Operand activated =
      gated_pack_forward(ctx, activation, upload(gate), upload(up), halves);
  const auto all_scales = ctx.read<float>(halves.scales);
  const int64_t stride = halves.scales.dim(1);
  const auto scales = [&](int64_t index) {
    const auto begin = all_scales.begin() + index * stride;
    return std::vector<float>(begin, begin + rows);
  };
  const auto gate_halves = ctx.read<uint16_t>(halves.gate);
  const auto up_halves = ctx.read<uint16_t>(halves.up);
  const std::vector<double> exact(n, 0.0);
  halves_check.compare("gate", gate_halves, scales(0), to_double(gate), exact, in_rows);
  halves_check.compare("up", up_halves, scales(1), to_double(up), exact, in_rows);

  const auto activate = [&](const std::vector<double>& g, const std::vector<double>& u,
                            std::vector<double>& error) {
    std::vector<double> y(n);
    cpu::gated_forward(activation, g.data(), u.data(), y.data(), static_cast<int64_t>(n));
    error.resize(n);
    for (size_t i = 0; i < n; ++i) {
      error[i] =
          std::abs(u[i]) * activation_bound(activation, g[i]) + 2 * kF32Rounding * std::abs(y[i]);
    }
    return y;
  };
  std::vector<double> error;
  const auto forward = activate(to_double(gate), to_double(up), error);
  const auto forward_blocks = blocks_of(ctx, activated);
  halves_check.compare("activated", forward_blocks, ctx.read<float>(activated.scales), forward,
                       error, in_blocks);
  check.require(padding_is_zero(forward_blocks, rows, columns), "padding is zero");

  // The way back starts from the halves as they are.
  std::vector<double> g(n), u(n), grad_gate(n), grad_up(n), gate_error(n), up_error(n);
  for (size_t i = 0; i < n; ++i) {
    const size_t row = i / static_cast<size_t>(columns);
    g[i] = half_value(gate_halves[i]) * static_cast<double>(all_scales[row]);
    u[i] = half_value(up_halves[i]) *
           static_cast<double>(all_scales[static_cast<size_t>(stride) + row]);
  }
  cpu::gated_backward(activation, g.data(), u.data(), to_double(grad).data(), grad_gate.data(),
                      grad_up.data(), static_cast<int64_t>(n));
  for (size_t i = 0; i < n; ++i) {
    const double d = std::abs(static_cast<double>(grad[i]));
    gate_error[i] = d * std::abs(u[i]) * activation_slope_bound(activation, g[i]);
    up_error[i] = d * activation_bound(activation, g[i]) + 2 * kF32Rounding * std::abs(grad_up[i]);
  }
  const GatedGradients gradients = gated_pack_backward(ctx, halves, upload(grad));
  halves_check.compare("grad_gate", blocks_of(ctx, gradients.gate),
                       ctx.read<float>(gradients.gate.scales), grad_gate, gate_error, in_blocks);
  halves_check.compare("grad_up", blocks_of(ctx, gradients.up),
                       ctx.read<float>(gradients.up.scales), grad_up, up_error, in_blocks);
  const auto again = activate(g, u, error);
  const auto again_blocks = blocks_of(ctx, gradients.activated);
  halves_check.compare("activated again", again_blocks, ctx.read<float>(gradients.activated.scales),
                       again, error, in_blocks);
  check.require(padding_is_zero(again_blocks, rows, columns), "padding is zero again");
  return check.result();
}

}  // namespace

void add_gated_pack_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases) {
  if (ctx.modelled() != DeviceKind::kGpu) return;
  std::vector<std::pair<int64_t, int64_t>> sizes = {{1, 8}, {33, 40}, {7, 2056}, {70, 72}};
  if (level == VerifyLevel::kFull) sizes.push_back({130, 14336});
  for (const auto& [rows, columns] : sizes) {
    // Nothing is taken in parts: what does not fit a binding does not come here.
    if (static_cast<uint64_t>(rows * columns) * 4 > ctx.limits().max_binding_size) continue;
    for (const Activation activation : kActivations) {
      cases.push_back({"gated_pack",
                       fmt::format("{}, {} x {}", activation_name(activation), rows, columns),
                       [=, rows = rows, columns = columns](Context& c) {
                         return run_gated_pack(c, activation, rows, columns);
                       }});
    }
  }
}

}  // namespace wgrad::ops
