#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/attention.h"
#include "ops/verify.h"

namespace wgrad::ops {

/// Attention over rows of these lengths. `queries` 0: every token is a query (training); else the
/// last `queries` tokens are (generation).
struct AttentionCase {
  AttentionShape shape;
  std::vector<int64_t> rows;
  int64_t queries = 0;
  float magnitude = 1.0f;       ///< of q and k
  float grad_magnitude = 1.0f;  ///< of grad_out
  uint64_t seed = 1;

  int64_t keys() const;
  int64_t query_count() const { return queries > 0 ? queries : keys(); }
  std::string describe() const;
};

struct AttentionInputs {
  std::vector<float> q, k, v, grad_out;
  std::vector<uint32_t> row_begin, row_end;
};
AttentionInputs attention_inputs(const AttentionCase& c);

struct AttentionOutputs {
  std::vector<float> out, logsumexp, grad_q, grad_k, grad_v;
};
/// The gradients only where every token is a query.
AttentionOutputs run_attention(Context& ctx, const AttentionCase& c, const AttentionInputs& in);

/// What arithmetic the kernels use; see attention_reference().
struct AttentionRounding {
  double sums = kF32Rounding;
  /// Relative rounding of the operands of the products: 0 in f32, 2^-10 in f16.
  double operands = 0.0;
};

/// The CPU's double result, and for each element how far a correct kernel may be from it: every
/// rounding is followed to the outputs, element by element, with absolute values.
struct AttentionReference {
  std::vector<double> out, logsumexp, grad_q, grad_k, grad_v;
  struct Bounds {
    std::vector<double> out, logsumexp, grad_q, grad_k, grad_v;
  } bound;
};
AttentionReference attention_reference(const AttentionCase& c, const AttentionInputs& in,
                                       const AttentionRounding& rounding);

/// Compares every output that the case has.
VerifyResult check_attention(const AttentionCase& c, const AttentionReference& reference,
                             const AttentionOutputs& seen, const std::string& path);

}  // namespace wgrad::ops
