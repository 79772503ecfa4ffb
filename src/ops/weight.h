#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/linear.h"

namespace wgrad::ops {

/// Rows [row_begin, row_begin + out.dim(0)) of a weight in any format as f32.
void weight_rows_to_f32(Context& ctx, const Weight& weight, int64_t row_begin, const Tensor& out);

}  // namespace wgrad::ops
