#pragma once

#include "ops/gemm_source.h"
#include "ops/wgsl_writer.h"

namespace wgrad::ops {

inline constexpr const char* kGemmLeft = "subgroup_matrix_left<f16, 16, 16>";
inline constexpr const char* kGemmRight = "subgroup_matrix_right<f16, 16, 16>";
inline constexpr const char* kGemmResult = "subgroup_matrix_result<f32, 16, 16>";

/// The parts of a product's text that depend on what becomes of its sums: the bindings before the
/// entry point, and what follows the loop, where c0_0.. hold the subgroup's sums, `wm` and `wn` its
/// place in the tile that begins at `bm` and `bn`, `sg` and `lane` the invocation's.
class GemmOutput {
 public:
  GemmOutput(const GemmKernel& kernel, WgslWriter& writer)
      : kernel_(kernel),
        w_(writer),
        fragments_m_(kernel.wm / 16),
        fragments_n_(kernel.wn / 16),
        strip_stride_((kernel.wn + 4) / 4) {}

  /// Units of 16 bytes of workgroup memory that store() uses.
  int strip_units() const { return kernel_.subgroups() * 16 * strip_stride_; }
  /// Bindings, parameters, workgroup memory `sm` of so many units, and the function that stores
  /// four elements of C.
  void declare(int memory_units) {
    declare_bindings(memory_units);
    store_function();
  }
  /// Scales the sums, adds what is to be added and stores them.
  void store();

 private:
  void declare_bindings(int memory_units);
  void store_function();
  std::string four(const char* array, const char* at) const;
  int pieces() const { return static_cast<int>(kernel_.low_rank / 16); }
  void load_term_factor();
  void multiply_term(int i);

  const GemmKernel& kernel_;
  WgslWriter& w_;
  int fragments_m_, fragments_n_, strip_stride_;
};

}  // namespace wgrad::ops
