#pragma once

namespace wgrad::ops {

/// How far silu(x) and its derivative may be from their values in double, where exp() and division
/// are as loose as WGSL allows.
double silu_bound(double x);
double silu_slope_bound(double x);

}  // namespace wgrad::ops
