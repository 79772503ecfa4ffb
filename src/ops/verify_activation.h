#pragma once

#include <string_view>

#include "ops/elementwise.h"

namespace wgrad::ops {

std::string_view activation_name(Activation activation);  ///< "silu"

/// How far the activation of x and its derivative may be from their values in double, where exp()
/// and division are as loose as WGSL allows.
double activation_bound(Activation activation, double x);
double activation_slope_bound(Activation activation, double x);

}  // namespace wgrad::ops
