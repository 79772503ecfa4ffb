#pragma once

#include <map>
#include <vector>

#include "model/batch.h"
#include "model/rope.h"
#include "ops/context.h"

namespace wgrad::model {

/// What ops::rope_apply takes for one batch.
struct RopeView {
  Tensor table;   ///< f32 [positions, rotary_dim / 2, 2]
  Tensor places;  ///< u32 [tokens]
};

/// The cosines and sines of one rotary embedding on the device. Where short and long rows have
/// different frequencies, a section of the table for each, and a token's place in the table is its
/// position within its row's section. Owns the memory.
class RopeTable {
 public:
  /// Covers rows up to so many positions from the start; 0: the table grows with the rows that
  /// come. Never more than `most`.
  RopeTable(Context& ctx, const RopeConfig& rope, int64_t positions, int64_t most);

  /// Makes the table reach the batch's tokens and returns it with their places.
  RopeView cover(Context& ctx, const Batch& batch);

 private:
  struct Section {
    int64_t row_length = 0;  ///< of a row that has this section's frequencies
    int64_t positions = 0;
    int64_t first = 0;  ///< position of the table
  };
  using Sections = std::map<int64_t, Section>;  ///< by regime

  /// Makes the section of rows of so many tokens hold as many positions.
  void want(Sections& sections, int64_t row_length, int64_t positions) const;
  void build(Context& ctx, Sections sections);

  RopeConfig rope_;
  int64_t most_;
  Sections sections_;
  Tensor table_;
};

}  // namespace wgrad::model
