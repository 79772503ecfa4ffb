#include "data/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace wgrad::data {
namespace {

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

template <typename T>
void shuffle(std::vector<T>& items, Random& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

/// Best-fit decreasing: each row goes into the fullest bin that still takes it.
std::vector<std::vector<int64_t>> pack(const std::vector<int64_t>& lengths, int64_t capacity) {
  std::vector<int64_t> by_length(lengths.size());
  std::iota(by_length.begin(), by_length.end(), 0);
  std::stable_sort(by_length.begin(), by_length.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  std::vector<std::vector<int64_t>> bins;
  std::set<std::pair<int64_t, size_t>> room;  // (free tokens, bin)
  for (int64_t row : by_length) {
    const int64_t length = lengths[static_cast<size_t>(row)];
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
  for (auto& bin : bins) std::sort(bin.begin(), bin.end());
  std::sort(bins.begin(), bins.end());
  return bins;
}

int64_t sum_of_longest(std::vector<int64_t> lengths, int64_t count) {
  const size_t n = std::min(lengths.size(), static_cast<size_t>(count));
  std::partial_sort(lengths.begin(), lengths.begin() + static_cast<int64_t>(n), lengths.end(),
                    std::greater<>());
  return std::accumulate(lengths.begin(), lengths.begin() + static_cast<int64_t>(n), int64_t{0});
}

void check(std::span<const Row> rows, const BatchOptions& options) {
  if (rows.empty()) throw input_error("batches", "there are no rows", "expected at least one");
  if (options.batch_size < 1 || options.grad_accum < 1) {
    throw input_error(
        "batches",
        fmt::format("--batch-size {} and --grad-accum {}", options.batch_size, options.grad_accum),
        "expected both to be positive");
  }
}

}  // namespace

BatchOrder::BatchOrder(std::span<const Row> rows, const BatchOptions& options) : options_(options) {
  check(rows, options);
  lengths_.reserve(rows.size());
  for (const Row& row : rows) lengths_.push_back(row.tokens());
  if (options.packing) {
    const int64_t most = std::max<int64_t>(options.max_seq_len, 1);
    const bool overflows = options.batch_size > INT64_MAX / most;
    bins_ = pack(lengths_, overflows ? INT64_MAX : options.batch_size * most);
    micro_batches_per_epoch_ = static_cast<int64_t>(bins_.size());
    for (const auto& bin : bins_) {
      int64_t tokens = 0;
      for (int64_t row : bin) tokens += lengths_[static_cast<size_t>(row)];
      most_tokens_ = std::max(most_tokens_, tokens);
    }
  } else {
    const int64_t n = static_cast<int64_t>(lengths_.size());
    micro_batches_per_epoch_ = (n - 1) / options.batch_size + 1;
    most_tokens_ = sum_of_longest(lengths_, options.batch_size);
  }
}

int64_t BatchOrder::steps_per_epoch() const {
  return (micro_batches_per_epoch_ - 1) / options_.grad_accum + 1;
}

const std::vector<std::vector<int64_t>>& BatchOrder::step(int64_t step) {
  order_epoch(step / steps_per_epoch());
  return steps_[static_cast<size_t>(step % steps_per_epoch())];
}

void BatchOrder::order_epoch(int64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  Random random(options_.seed, static_cast<uint64_t>(epoch));
  std::vector<std::vector<int64_t>> micro_batches = bins_;
  if (options_.packing) {
    if (options_.shuffle) shuffle(micro_batches, random);
  } else {
    std::vector<int64_t> order(lengths_.size());
    std::iota(order.begin(), order.end(), 0);
    if (options_.shuffle) shuffle(order, random);
    const size_t batch_size = std::min(order.size(), static_cast<size_t>(options_.batch_size));
    for (size_t i = 0; i < order.size(); i += batch_size) {
      const size_t end = std::min(order.size(), i + batch_size);
      micro_batches.emplace_back(order.begin() + static_cast<int64_t>(i),
                                 order.begin() + static_cast<int64_t>(end));
    }
  }
  steps_.assign(static_cast<size_t>(steps_per_epoch()), {});
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    steps_[i / static_cast<size_t>(options_.grad_accum)].push_back(std::move(micro_batches[i]));
  }
}

}  // namespace wgrad::data
