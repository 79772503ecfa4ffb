#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"

namespace wgrad::data {

struct BatchOptions {
  int64_t batch_size = 4;
  int64_t grad_accum = 1;
  bool packing =
      false;  ///< best-fit: rows share a micro-batch up to batch_size * max_seq_len tokens
  int64_t max_seq_len = 2048;
  bool shuffle = true;
  uint64_t seed = 0;
};

/// Which rows share each micro-batch of each step. A pure function of the lengths, the options and
/// the epoch, so that a resumed run sees the same order. A step never crosses an epoch: the last
/// of an epoch may have fewer micro-batches or rows.
class BatchOrder {
 public:
  BatchOrder(std::span<const Row> rows, const BatchOptions& options);

  int64_t steps_per_epoch() const;
  /// Micro-batches of step `step` (0-based over the whole run), each a list of row indices.
  const std::vector<std::vector<int64_t>>& step(int64_t step);
  /// The largest number of tokens that any micro-batch of any order can hold.
  int64_t most_tokens() const { return most_tokens_; }

 private:
  void order_epoch(int64_t epoch);

  std::vector<int64_t> lengths_;
  BatchOptions options_;
  std::vector<std::vector<int64_t>> bins_;  ///< with packing: the rows of each micro-batch
  int64_t micro_batches_per_epoch_ = 0;
  int64_t most_tokens_ = 0;
  int64_t epoch_ = -1;
  std::vector<std::vector<std::vector<int64_t>>> steps_;  ///< of the current epoch
};

}  // namespace wgrad::data
