#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "wgrad/train.h"

namespace wgrad::data {

/// What happened to rows.
struct Summary {
  static constexpr size_t kBadListed = 5;

  int64_t rows = 0, tokens = 0, counted_tokens = 0, longest = 0;
  int64_t cut = 0;              ///< rows cut
  int64_t cut_to = 0;           ///< the most tokens of a row; 0: no cut
  bool models_limit = false;    ///< that is the model's own limit
  int64_t nothing_left = 0;     ///< rows with nothing to count (after the cut), not among `rows`
  bool kept_uncounted = false;  ///< those were delivered all the same
  int64_t bad = 0;              ///< rows that cannot be used
  std::vector<std::string> first_bad;  ///< messages of the first of them, kBadListed at most
  int64_t beside_template = 0;  ///< prompts and completions as they are; the model has a template
  std::map<int64_t, int64_t> lengths;  ///< how many rows have so many tokens, before the cut

  std::vector<std::string> warnings() const;
  /// "3 bad rows: (1) d.jsonl:2: ...; (2) ...": how many there are, and the first of them.
  std::string describe_bad(std::string_view what = "") const;
  /// Rows that had more tokens than this before the cut.
  int64_t longer_than(int64_t tokens) const;
  /// Of all lengths the smallest that `share` of the rows do not exceed; 0 without rows.
  int64_t length_at(double share) const;
};

/// The summary as a run reports it; `name` says of what.
DataSummary describe(const Summary& summary, std::string name);

}  // namespace wgrad::data
