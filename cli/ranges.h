#pragma once

#include <fmt/format.h>

#include <CLI/Validators.hpp>

namespace wgrad::cli {

/// A number from `low` on, for messages without the largest number of its type.
class AtLeast : public CLI::Validator {
 public:
  explicit AtLeast(int low) : CLI::Validator(fmt::format("{} or more", low)) {
    func_ = [low](std::string& text) {
      double value = 0;
      const bool ok = CLI::detail::lexical_cast(text, value) && value >= low;
      return ok ? std::string() : fmt::format("\"{}\" is no number from {} on", text, low);
    };
  }
};

}  // namespace wgrad::cli
