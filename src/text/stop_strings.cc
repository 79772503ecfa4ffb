#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace wgrad::text {

std::string StopStrings::push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    stopped_ = true;
    held_.resize(end);
    return std::exchange(held_, {});
  }
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (held_.ends_with(std::string_view(stop).substr(0, length))) keep = length;
    }
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace wgrad::text
