#pragma once

#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// sums[j] += sum over i of x[i, j] on the GPU, in a fixed order.
void add_column_sums(Context& ctx, const Tensor& x, const Tensor& sums);

}  // namespace wgrad::ops
