#pragma once

#include <memory>
#include <string_view>

struct wgrad_pattern;

namespace wgrad::text {

/// A regular expression as Python's `re` writes it, without look-around and back-references: a
/// match takes time proportional to the text, whatever the expression. Owns what it was compiled
/// to. Move-only.
class Pattern {
 public:
  /// An expression that cannot be read is an input error that names `where`.
  Pattern(std::string_view expression, std::string_view where);

  /// Whether the whole of the text matches (Python's re.fullmatch).
  bool matches(std::string_view text) const;

 private:
  struct Free {
    void operator()(wgrad_pattern* pattern) const;
  };
  std::unique_ptr<wgrad_pattern, Free> handle_;
};

}  // namespace wgrad::text
