#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::model {

/// One example: labels[i] belongs to ids[i]; -100 is not counted.
struct Row {
  std::span<const uint32_t> ids;
  std::span<const int32_t> labels;  ///< as many as ids, or none: nothing is counted
};

/// Rows whose tokens lie end to end; positions restart with each row. The shift is done here:
/// position t predicts the label of t + 1 where both lie in one row.
struct Batch {
  std::vector<uint32_t> ids, positions, row_begin, row_end;  ///< a token
  std::vector<uint32_t> counted;     ///< the positions that predict a counted label, ascending
  std::vector<int32_t> targets;      ///< their labels
  std::vector<uint32_t> target_row;  ///< the row of each counted position
  uint32_t longest_row = 0;

  /// The same on the device; those of `counted` and `targets` are empty where nothing counts.
  Tensor device_ids, device_positions, device_row_begin, device_row_end;
  Tensor device_counted, device_targets;

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  int64_t counted_tokens() const { return static_cast<int64_t>(counted.size()); }
};

/// An id or a counted label outside the vocabulary is an input error.
Batch make_batch(Context& ctx, std::span<const Row> rows, int64_t vocab_size);

/// Tokens that continue a row of which a cache holds the first `begin`; nothing is counted.
Batch continue_row(Context& ctx, std::span<const uint32_t> ids, uint32_t begin, int64_t vocab_size);

}  // namespace wgrad::model
