#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// c[m, n] = alpha sum of the parts (+ bias) (+ c), in the order of the parts.
struct SumParts {
  int64_t parts = 0, m = 0, n = 0;
  Tensor c, bias;  ///< bias [n] may be empty
  int64_t ldc = 0, c_column = 0;
  float alpha = 1.0f;
  bool accumulate = false;
};
/// `partial` f32 [parts, m, n].
void sum_parts(Context& ctx, const Tensor& partial, const SumParts& sum);

}  // namespace wgrad::ops
