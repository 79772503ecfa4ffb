#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// Ranks are padded to whole blocks of subgroup matrices.
constexpr int64_t lora_padded_rank(int64_t rank) { return (rank + 15) / 16 * 16; }

/// Both factors of a low-rank adapter in f16, each times the power of two that brings its largest
/// magnitude into [2^14, 2^15).
struct LoraHalves {
  Tensor a;       ///< f16 [rank padded to 16, in padded to 32]
  Tensor b;       ///< f16 [out padded to 32, rank padded to 16]
  Tensor powers;  ///< f32 [4]: a's power, its inverse, b's power, its inverse
  int64_t rank = 0, in_features = 0, out_features = 0;

  explicit operator bool() const { return rank > 0; }
};

/// The halves of many adapters' factors A[rank, in] and B[out, rank], made together: those that lie
/// in one buffer take two dispatches. Ranks and inputs are multiples of 4.
class LoraFactorPack {
 public:
  /// Allocates; halves()[i] belongs to pairs[i] and is empty where that is.
  LoraFactorPack(Context& ctx, std::span<const std::pair<Tensor, Tensor>> pairs);

  /// Sets the halves from the values as they are now.
  void pack(Context& ctx) const;
  std::span<const LoraHalves> halves() const { return halves_; }

 private:
  /// Factors that lie in one buffer, within one binding.
  struct Batch {
    Tensor values, table, parts, halves;
    int64_t factors = 0, part_count = 0, pack_workgroups = 0;
  };
  class BatchBuilder;

  std::vector<LoraHalves> halves_;
  std::vector<Batch> batches_;
  Tensor powers_;
};

}  // namespace wgrad::ops
