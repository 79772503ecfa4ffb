#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace wgrad::data {

/// One training row as tokens. labels[i] = counted[i] ? ids[i] : -100; the shift by one happens in
/// the loss, so counted[0] never adds to it.
struct Row {
  std::vector<uint32_t> ids;
  std::vector<uint8_t> counted;  ///< same length
  int64_t number = 0;            ///< among the rows of all files, from 1, bad ones included
  std::string where = {};        ///< "FILE:LINE", as long as the row comes from there

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  /// Positions whose label counts in the loss: counted[i] for i >= 1.
  int64_t counted_tokens() const;
};

}  // namespace wgrad::data
