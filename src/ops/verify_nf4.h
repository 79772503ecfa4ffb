#pragma once

#include <vector>

namespace wgrad::ops {

/// What bitsandbytes' arithmetic makes of a weight.
std::vector<float> through_nf4(const std::vector<float>& w);

}  // namespace wgrad::ops
