#include "ops/verify_activation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/verify.h"

namespace wgrad::ops {
namespace {

constexpr double u = kF32Rounding;
/// exp() is taken of -80 at least, so the activations' tails end there.
constexpr double kTail = 2e-33;

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// x s(z), s the logistic function: silu has z = x, gelu's tanh formula a cubic.
struct Inner {
  double z, slope;
  double roundings;  ///< of z, relative
};
Inner inner_of(Activation activation, double x) {
  if (activation == Activation::kSilu) return {x, 1.0, 0.0};
  const double root = 2.0 * std::sqrt(2.0 / std::numbers::pi), c = std::clamp(x, -30.0, 30.0);
  return {root * c * (1.0 + 0.044715 * c * c), root * (1.0 + 3.0 * 0.044715 * c * c), 8.0};
}

/// Of exp(), which may err by 3 + 2 |z| ulp, of a z with its own roundings.
double exponent_error(const Inner& inner) {
  return (4.0 + inner.roundings) * std::min(std::abs(inner.z), 80.0);
}

/// The normal distribution below -|x| and its density, with the relative errors of
/// lib_gelu.wgsl: the exponent x^2 / 2 is rounded twice before exp() errs; the polynomial's eight
/// steps of two roundings on sums of 1.8 times its value, its argument's seven, doubled.
struct Tail {
  double below, density, below_error, density_error;
};
Tail tail_of(double x) {
  const double m = std::min(std::abs(x), 30.0);
  const double below = 0.5 * std::erfc(m / std::numbers::sqrt2);
  const double density = std::exp(-0.5 * m * m) / std::sqrt(2.0 * std::numbers::pi);
  return {below, density, (64.0 + 3.0 * m * m) * u, (12.0 + 3.0 * m * m) * u};
}

}  // namespace

std::string_view activation_name(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      break;
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kGelu:
      return "gelu";
  }
  return "silu";
}

/// Of a logistic function the error of exp() matters as far as its result does; a division may err
/// by 2.5 ulp, and there are some roundings.
double activation_bound(Activation activation, double x) {
  if (activation == Activation::kGelu) {
    const Tail t = tail_of(x);
    const double s = x < 0 ? t.below : 1.0 - t.below;
    return std::abs(x) * (t.below_error * t.below + 3.0 * u * s) + kTail;
  }
  const Inner inner = inner_of(activation, x);
  const double s = logistic(inner.z);
  return std::abs(x) * s * (16.0 + exponent_error(inner) * (1.0 - s)) * u + kTail;
}

/// Of a sum whose terms may cancel: s (1 + x (1 - s) z') or s + x density.
double activation_slope_bound(Activation activation, double x) {
  if (activation == Activation::kGelu) {
    const Tail t = tail_of(x);
    const double s = x < 0 ? t.below : 1.0 - t.below;
    return t.below_error * t.below + 4.0 * u * s +
           std::min(std::abs(x), 30.0) * t.density * t.density_error + kTail * 100.0;
  }
  const Inner inner = inner_of(activation, x);
  const double s = logistic(inner.z);
  const double size = s * (1.0 + std::abs(x) * (1.0 - s) * inner.slope);
  return size * (16.0 + inner.roundings + exponent_error(inner)) * u + kTail * 100.0;
}

}  // namespace wgrad::ops
