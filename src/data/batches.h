#pragma once

#include <cstdint>
#include <vector>

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
///
/// With packing the rows of a window (of thousands, in the file's order, or with shuffle in an
/// order of the seed's) go into micro-batches by best-fit decreasing; these stay the same over the
/// epochs, and shuffle changes their order.
class BatchOrder {
 public:
  /// `lengths`: the tokens of each row.
  BatchOrder(std::vector<int64_t> lengths, const BatchOptions& options);

  int64_t steps_per_epoch() const;
  /// Micro-batches of step `step` (0-based over the whole run), each a list of row indices.
  std::vector<std::vector<int64_t>> step(int64_t step);
  /// The largest number of tokens that any micro-batch of any order can hold.
  int64_t most_tokens() const { return most_tokens_; }

 private:
  void pack_rows(const std::vector<int64_t>& lengths);
  void order_epoch(int64_t epoch);
  std::vector<int64_t> micro_batch(int64_t index) const;

  BatchOptions options_;
  int64_t rows_;
  std::vector<int64_t> packed_rows_;  ///< with packing: the rows of all bins, bin by bin
  std::vector<int64_t> bin_begins_;   ///< of each bin among them, and their end
  int64_t micro_batches_per_epoch_ = 0;
  int64_t most_tokens_ = 0;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;  ///< of the current epoch: of the rows, with packing of the bins
};

}  // namespace wgrad::data
