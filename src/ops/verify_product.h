#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ops/matmul.h"
#include "ops/verify.h"

namespace wgrad::ops {

/// An operand as given, and how far the values that a kernel multiplies may be from it.
struct VerifyOperand {
  std::vector<float> values;
  double relative = 0;           ///< of each value
  std::vector<double> absolute;  ///< of each stored row, or one for all, or none
};

/// C = alpha op(A, B) (+ bias) (+ C) in double, with the bound that the arithmetic allows.
struct VerifyProduct {
  MatmulOp op = MatmulOp::kNT;
  int64_t m = 0, n = 0, k = 0;
  VerifyOperand a, b;
  std::vector<float> c;     ///< empty: set, not added to
  std::vector<float> bias;  ///< may be empty
  float alpha = 1.0f;
  /// Relative error of a sum per element summed: 2^-24 for f32 fma; the matrix units cut their
  /// sums, twice as far.
  double per_term = 0x1p-24;

  /// Compares every element, or some thousands spread over a large output.
  void compare(VerifyCheck& check, std::string_view name, std::span<const float> seen) const;
};

/// An operand that a kernel rounds to f16 after scaling each row (or all) into f16's range.
/// Rounding may be towards zero (2^-10), and what falls below f16's normal numbers may become 0:
/// 2^-28 of the largest magnitude.
void round_operand_to_f16(VerifyOperand& operand, int64_t columns, bool per_row);

/// The value of a finite half.
double half_value(uint16_t bits);

}  // namespace wgrad::ops
