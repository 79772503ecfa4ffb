#include "data/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "wgrad/error.h"

namespace wgrad::data {
namespace {

/// Rows that are packed together: enough that few micro-batches stay open, few enough that the rows
/// of one lie near each other in the file.
constexpr size_t kPackingWindow = 8192;
/// The seed's stream of random numbers for packing; epochs have those from 0 on.
constexpr uint64_t kPackingStream = UINT64_MAX - 1;

/// splitmix64 (Steele et al. 2014): a stream of its own for each (seed, epoch).
class Random {
 public:
  Random(uint64_t seed, uint64_t stream)
      : state_(seed * 0x9E3779B97F4A7C15ull ^ (stream + 1) * 0xD1B54A32D192ED03ull) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }

  /// Uniform in [0, n), without bias.
  uint64_t below(uint64_t n) {
    const uint64_t limit = n * (UINT64_MAX / n);
    uint64_t value = next();
    while (value >= limit) value = next();
    return value % n;
  }

 private:
  uint64_t state_;
};

void shuffle(std::vector<int64_t>& items, Random& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

std::vector<int64_t> first_numbers(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// Best-fit decreasing: each row goes into the fullest bin that still takes it.
std::vector<std::vector<int64_t>> pack(std::span<const int64_t> rows,
                                       const std::vector<int64_t>& lengths, int64_t capacity) {
  const auto length_of = [&](int64_t row) { return lengths[static_cast<size_t>(row)]; };
  std::vector<int64_t> by_length(rows.begin(), rows.end());
  std::ranges::stable_sort(by_length, std::greater<>(), length_of);
  std::vector<std::vector<int64_t>> bins;
  std::set<std::pair<int64_t, size_t>> room;  // (free tokens, bin)
  for (const int64_t row : by_length) {
    const int64_t length = length_of(row);
    auto fit = room.lower_bound({length, 0});
    if (fit == room.end()) {
      bins.push_back({row});
      room.insert({capacity - length, bins.size() - 1});
    } else {
      auto [free_tokens, bin] = *fit;
      room.erase(fit);
      bins[bin].push_back(row);
      room.insert({free_tokens - length, bin});
    }
  }
  // In the order of the file, as far as packing allows.
  for (auto& bin : bins) std::ranges::sort(bin);
  std::ranges::sort(bins);
  return bins;
}

int64_t sum_of_longest(std::vector<int64_t> lengths, int64_t count) {
  const auto n = std::min(static_cast<int64_t>(lengths.size()), count);
  std::partial_sort(lengths.begin(), lengths.begin() + n, lengths.end(), std::greater<>());
  return std::accumulate(lengths.begin(), lengths.begin() + n, int64_t{0});
}

void check(int64_t rows, const BatchOptions& options) {
  if (rows == 0) throw input_error("batches", "there are no rows", "expected at least one");
  if (options.batch_size < 1 || options.grad_accum < 1) {
    throw input_error(
        "batches",
        fmt::format("--batch-size {} and --grad-accum {}", options.batch_size, options.grad_accum),
        "expected both to be positive");
  }
}

}  // namespace

BatchOrder::BatchOrder(std::vector<int64_t> lengths, const BatchOptions& options)
    : options_(options), rows_(static_cast<int64_t>(lengths.size())) {
  check(rows_, options);
  if (options.packing) {
    pack_rows(lengths);
    micro_batches_per_epoch_ = static_cast<int64_t>(bin_begins_.size()) - 1;
  } else {
    micro_batches_per_epoch_ = (rows_ - 1) / options.batch_size + 1;
    most_tokens_ = sum_of_longest(std::move(lengths), options.batch_size);
  }
}

void BatchOrder::pack_rows(const std::vector<int64_t>& lengths) {
  const int64_t most = std::max<int64_t>(options_.max_seq_len, 1);
  const bool overflows = options_.batch_size > INT64_MAX / most;
  const int64_t capacity = overflows ? INT64_MAX : options_.batch_size * most;
  std::vector<int64_t> rows = first_numbers(rows_);
  if (options_.shuffle) {
    Random random(options_.seed, kPackingStream);
    shuffle(rows, random);
  }
  packed_rows_.reserve(rows.size());
  for (size_t begin = 0; begin < rows.size(); begin += kPackingWindow) {
    const size_t count = std::min(kPackingWindow, rows.size() - begin);
    for (const auto& bin : pack(std::span(rows).subspan(begin, count), lengths, capacity)) {
      bin_begins_.push_back(static_cast<int64_t>(packed_rows_.size()));
      packed_rows_.insert(packed_rows_.end(), bin.begin(), bin.end());
      int64_t tokens = 0;
      for (const int64_t row : bin) tokens += lengths[static_cast<size_t>(row)];
      most_tokens_ = std::max(most_tokens_, tokens);
    }
  }
  bin_begins_.push_back(rows_);
}

int64_t BatchOrder::steps_per_epoch() const {
  return (micro_batches_per_epoch_ - 1) / options_.grad_accum + 1;
}

std::vector<std::vector<int64_t>> BatchOrder::step(int64_t step) {
  order_epoch(step / steps_per_epoch());
  const int64_t begin = step % steps_per_epoch() * options_.grad_accum;
  const int64_t count = std::min(options_.grad_accum, micro_batches_per_epoch_ - begin);
  std::vector<std::vector<int64_t>> micro_batches;
  for (int64_t i = 0; i < count; ++i) micro_batches.push_back(micro_batch(begin + i));
  return micro_batches;
}

std::vector<int64_t> BatchOrder::micro_batch(int64_t index) const {
  const std::vector<int64_t>& rows = options_.packing ? packed_rows_ : order_;
  int64_t begin = 0, end = 0;
  if (options_.packing) {
    const auto bin = static_cast<size_t>(order_[static_cast<size_t>(index)]);
    begin = bin_begins_[bin];
    end = bin_begins_[bin + 1];
  } else {
    begin = index * options_.batch_size;
    end = begin + std::min(options_.batch_size, rows_ - begin);
  }
  return {rows.begin() + begin, rows.begin() + end};
}

void BatchOrder::order_epoch(int64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  order_ = first_numbers(options_.packing ? micro_batches_per_epoch_ : rows_);
  if (!options_.shuffle) return;
  Random random(options_.seed, static_cast<uint64_t>(epoch));
  shuffle(order_, random);
}

}  // namespace wgrad::data
