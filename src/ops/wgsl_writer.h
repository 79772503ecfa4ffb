#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace wgrad::ops {

/// Collects the lines of generated WGSL.
class WgslWriter {
 public:
  template <typename... Args>
  void line(fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), text, std::forward<Args>(args)...);
    text_ += '\n';
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace wgrad::ops
