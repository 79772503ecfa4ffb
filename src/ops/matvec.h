#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "ops/context.h"
#include "ops/matvec_source.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// Rows of x up to which the kernels that read the weight once are used.
inline constexpr int64_t kMatvecRows = 8;

/// y[m, n] = alpha x[m, k] W^T (+ bias) (+ y) for m <= kMatvecRows and k a multiple of 8.
struct MatvecCall {
  MatvecWeight weight = MatvecWeight::kF32;
  int64_t m = 0, n = 0, k = 0;
  Tensor x, y, bias;  ///< bias may be empty
  int64_t ldx = 0, ldy = 0;
  int64_t x_column = 0, y_column = 0;
  float alpha = 1.0f;
  bool accumulate = false;

  Tensor w;                            ///< a binding
  int64_t w_offset = 0, w_stride = 0;  ///< as in MatvecMember
  Tensor absmax_codes, absmax_scales;  ///< kNF4
  int64_t origin = 0;
  float absmax_offset = 0.0f;
};

/// RMSNorm on the way into products: weight [k] and eps as in rms_norm_forward.
struct MatvecNorm {
  Tensor weight;  ///< empty: none
  float eps = 0.0f;
  float add = 0.0f;  ///< to each weight
};

/// Whether x can be read in vec4s and has few enough rows.
bool fits_matvec(const MatvecCall& call);
void run_matvec(Context& ctx, const MatvecCall& call);
/// Up to kMatvecMembers calls of one row in one dispatch: one format (not kNF4), one k, their x in
/// one memory and their y in another; biases for all or none. `gated`: two calls, of which the
/// first gives y = activation(its result) times the second's. Returns false where the device binds
/// too few buffers.
bool run_matvecs(Context& ctx, std::span<const MatvecCall> calls, const MatvecNorm& norm,
                 std::optional<Activation> gated);

}  // namespace wgrad::ops
