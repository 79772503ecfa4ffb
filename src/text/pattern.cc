#include "text/pattern.h"

#include <fmt/format.h>

#include "text/rust_interface.h"
#include "wgrad/error.h"

namespace wgrad::text {

Pattern::Pattern(std::string_view expression, std::string_view where) {
  wgrad_pattern* handle = nullptr;
  wgrad_bytes error{};
  if (wgrad_pattern_new(bytes(expression), expression.size(), &handle, &error) != 0) {
    throw input_error(where, fmt::format("\"{}\": {}", expression, take(error)),
                      "a regular expression without look-around and back-references");
  }
  handle_.reset(handle);
}

bool Pattern::matches(std::string_view text) const {
  return wgrad_pattern_matches(handle_.get(), bytes(text), text.size()) != 0;
}

void Pattern::Free::operator()(wgrad_pattern* pattern) const { wgrad_pattern_free(pattern); }

}  // namespace wgrad::text
