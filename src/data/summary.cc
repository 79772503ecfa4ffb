#include "data/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/counted.h"

namespace wgrad::data {
namespace {

/// Bins 1, 2, 3-4, 5-8, ...; at most kMostBins, those of the shortest rows are joined.
std::vector<DataSummary::Bin> bins_of(const std::map<int64_t, int64_t>& lengths) {
  constexpr size_t kMostBins = 8;
  std::vector<DataSummary::Bin> bins;
  if (lengths.empty()) return bins;
  const auto bin_of = [](int64_t length) -> int {
    return length <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<uint64_t>(length - 1)));
  };
  const int last = bin_of(lengths.rbegin()->first);
  const int first =
      std::max(bin_of(lengths.begin()->first), last + 1 - static_cast<int>(kMostBins));
  for (int bin = first; bin <= last; ++bin) {
    const int64_t from = bin == 0 ? 0 : (int64_t{1} << (bin - 1)) + 1;
    bins.push_back({bin == first ? lengths.begin()->first : from, int64_t{1} << bin, 0});
  }
  bins.back().to = lengths.rbegin()->first;
  for (const auto& [length, rows] : lengths) {
    bins[static_cast<size_t>(std::max(bin_of(length) - first, 0))].rows += rows;
  }
  return bins;
}

/// Where and what of an error's message, for a list of them.
std::string in_brief(std::string_view message) {
  constexpr size_t kMostBytes = 180;
  message = message.substr(0, message.find("; "));
  if (message.size() <= kMostBytes) return std::string(message);
  size_t end = kMostBytes;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xc0) == 0x80) --end;
  return std::string(message.substr(0, end)) + "...";
}

}  // namespace

std::vector<std::string> Summary::warnings() const {
  std::vector<std::string> texts;
  if (bad > 0) texts.push_back(describe_bad(" skipped"));
  if (cut > 0) {
    texts.push_back(fmt::format(
        "{} of {} cut to {}", cut, counted(rows + nothing_left, "row"),
        models_limit
            ? fmt::format("{} tokens, the model's limit (max_position_embeddings); split them",
                          cut_to)
            : "the longest length; raise --max-seq-len to keep them whole"));
  }
  if (nothing_left > 0) {
    texts.push_back(
        fmt::format("{} {}: nothing in {} counts in the loss{}", counted(nothing_left, "row"),
                    kept_uncounted ? "would be skipped" : "skipped",
                    nothing_left == 1 ? "it" : "them", cut > 0 ? " (some after the cut)" : ""));
  }
  if (beside_template > 0) {
    texts.push_back(fmt::format(
        "{} of prompt and completion left as {}, without the model's chat template, which generate "
        "and chat use: --prompt-style chat puts them into it",
        counted(beside_template, "row"), beside_template == 1 ? "it is" : "they are"));
  }
  return texts;
}

std::string Summary::describe_bad(std::string_view what) const {
  std::string text = fmt::format("{}{}", counted(bad, "bad row"), what);
  if (bad > static_cast<int64_t>(first_bad.size())) {
    text += fmt::format(", the first {}", first_bad.size());
  }
  text += ": ";
  for (size_t i = 0; i < first_bad.size(); ++i) {
    if (i > 0) text += "; ";
    text += bad > 1 ? fmt::format("({}) {}", i + 1, in_brief(first_bad[i])) : first_bad[i];
  }
  return text;
}

int64_t Summary::longer_than(int64_t tokens) const {
  int64_t count = 0;
  for (auto at = lengths.upper_bound(tokens); at != lengths.end(); ++at) count += at->second;
  return count;
}

int64_t Summary::length_at(double share) const {
  const auto wanted =
      static_cast<int64_t>(std::ceil(share * static_cast<double>(rows + nothing_left)));
  int64_t seen = 0;
  for (const auto& [length, count] : lengths) {
    seen += count;
    if (seen >= wanted) return length;
  }
  return 0;
}

DataSummary describe(const Summary& summary, std::string name) {
  DataSummary out;
  out.name = std::move(name);
  out.rows = summary.rows;
  out.tokens = summary.tokens;
  out.counted_tokens = summary.counted_tokens;
  out.median_length = summary.length_at(0.5);
  out.p90_length = summary.length_at(0.9);
  out.longest = summary.lengths.empty() ? 0 : summary.lengths.rbegin()->first;
  out.cut = summary.cut;
  out.cut_to = summary.cut_to;
  out.skipped = summary.nothing_left;
  out.bad = summary.bad;
  out.lengths = bins_of(summary.lengths);
  return out;
}

}  // namespace wgrad::data
