#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wgrad::text {

/// Ends a text that comes in pieces where one of several strings begins, also where it lies across
/// pieces: what might be its beginning is held back.
class StopStrings {
 public:
  /// None is empty.
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// The text that can be shown now; may be empty.
  std::string push(std::string_view piece);
  /// What was held back, at the end of a text that holds no stop string.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace wgrad::text
