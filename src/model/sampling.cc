#include "model/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "wgrad/error.h"

namespace wgrad::model {
namespace {

/// The tokens that may be drawn, in order of their logits. Only the part that is asked for is
/// sorted: of a large vocabulary a draw looks at a few.
class Candidates {
  auto likelier() const {
    return [this](uint32_t a, uint32_t b) {
      return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
    };
  }

 public:
  Candidates(std::span<const float> logits, float best, const Sampling& sampling)
      : logits_(logits), best_(best), temperature_(sampling.temperature), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0u);
    if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < order_.size()) {
      const auto end = order_.begin() + sampling.top_k;
      std::nth_element(order_.begin(), end - 1, order_.end(), likelier());
      order_.erase(end, order_.end());
    }
    count_ = order_.size();
    for (const uint32_t id : order_) total_ += mass_of(id);
    if (sampling.top_p < 1) keep_top(sampling.top_p);
    if (sampling.min_p > 0) keep_above(sampling.min_p);
  }

  size_t count() const { return count_; }
  double total() const { return total_; }
  uint32_t id(size_t i) {
    sort_to(i + 1);
    return order_[i];
  }
  /// Relative to the likeliest token's.
  double mass(size_t i) { return mass_of(id(i)); }

 private:
  double mass_of(uint32_t id) const {
    return std::exp((static_cast<double>(logits_[id]) - best_) / temperature_);
  }

  void sort_to(size_t count) {
    constexpr size_t kFirst = 64;
    while (sorted_ < std::min(count, order_.size())) {
      const size_t next = std::min(order_.size(), std::max(kFirst, 4 * sorted_));
      const auto at = [this](size_t i) { return order_.begin() + static_cast<std::ptrdiff_t>(i); };
      std::partial_sort(at(sorted_), at(next), order_.end(), likelier());
      sorted_ = next;
    }
  }

  void keep_top(double share) {
    double kept = 0;
    size_t count = 0;
    while (count < count_ && kept < share * total_) kept += mass(count++);
    count_ = count;
    total_ = kept;
  }

  void keep_above(double share) {
    double kept = 0;
    size_t count = 0;
    while (count < count_ && mass(count) >= share) kept += mass(count++);
    count_ = count;
    total_ = kept;
  }

  std::span<const float> logits_;
  float best_;
  double temperature_;
  std::vector<uint32_t> order_;
  size_t sorted_ = 0;  ///< so many are in their final places
  size_t count_ = 0;
  double total_ = 0;
};

/// The first of the largest.
size_t likeliest(std::span<const float> logits) {
  if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) {
    throw logits_not_finite();
  }
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

Error logits_not_finite() {
  return runtime_failure("generate", "a logit that is not finite", "finite logits",
                         "check the model's weights, or use --dtype f32");
}

void check_sampling(const Sampling& sampling) {
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature)) {
    throw input_error("temperature", fmt::format("{}", sampling.temperature), "a number from 0 up");
  }
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    throw input_error("top-p", fmt::format("{}", sampling.top_p), "a number in (0, 1]");
  }
  if (sampling.top_k < 0) {
    throw input_error("top-k", fmt::format("{}", sampling.top_k), "0 (all) or more");
  }
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) {
    throw input_error("min-p", fmt::format("{}", sampling.min_p), "a number in [0, 1]");
  }
  if (!(sampling.repetition_penalty > 0) || !std::isfinite(sampling.repetition_penalty)) {
    throw input_error("repetition-penalty", fmt::format("{}", sampling.repetition_penalty),
                      "a number greater than 0 (1: none)");
  }
}

void penalise_repetition(std::span<float> logits, std::span<const uint32_t> seen, double penalty) {
  if (penalty == 1) return;
  const auto factor = static_cast<float>(penalty);
  const std::unordered_set<uint32_t> distinct(seen.begin(), seen.end());
  for (const uint32_t id : distinct) {
    if (id >= logits.size()) continue;
    logits[id] = logits[id] < 0 ? logits[id] * factor : logits[id] / factor;
  }
}

uint32_t sample_token(std::span<const float> logits, const Sampling& sampling, double uniform) {
  const size_t best = likeliest(logits);
  if (sampling.temperature == 0) return static_cast<uint32_t>(best);
  Candidates candidates(logits, logits[best], sampling);
  double left = uniform * candidates.total();
  for (size_t i = 0; i < candidates.count(); ++i) {
    left -= candidates.mass(i);
    if (left < 0) return candidates.id(i);
  }
  return candidates.id(candidates.count() - 1);
}

std::vector<std::pair<uint32_t, double>> token_chances(std::span<const float> logits,
                                                       const Sampling& sampling) {
  const size_t best = likeliest(logits);
  if (sampling.temperature == 0) return {{static_cast<uint32_t>(best), 1.0}};
  Candidates candidates(logits, logits[best], sampling);
  std::vector<std::pair<uint32_t, double>> chances;
  for (size_t i = 0; i < candidates.count(); ++i) {
    chances.emplace_back(candidates.id(i), candidates.mass(i) / candidates.total());
  }
  return chances;
}

}  // namespace wgrad::model
