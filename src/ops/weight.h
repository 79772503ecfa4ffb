#pragma once

#include <cstdint>
#include <string>

#include "ops/context.h"
#include "ops/linear.h"

namespace wgrad::ops {

/// load_weight in a given format. kF16 needs in_features to be a multiple of 8
/// and out_features of 4.
Weight load_weight_as(Context& ctx, WeightFormat format, std::string name, int64_t out_features,
                      int64_t in_features, const RowReader& read_rows);

/// Rows [row_begin, row_begin + out.dim(0)) of a weight in any format as f32.
void weight_rows_to_f32(Context& ctx, const Weight& weight, int64_t row_begin, const Tensor& out);

}  // namespace wgrad::ops
