#pragma once

#include <cstddef>
#include <string_view>

namespace wgrad {

/// Calls visit(character, offset) for each character of JSON text that is not within a string: what
/// can be said of a text's structure before a parser builds it.
template <typename Visit>
void for_each_json_mark(std::string_view text, const Visit& visit) {
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else {
      visit(c, i);
    }
  }
}

}  // namespace wgrad
