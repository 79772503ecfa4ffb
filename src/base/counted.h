#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace wgrad {

/// "1 row", "2 rows".
inline std::string counted(std::int64_t number, std::string_view noun) {
  std::string text = std::to_string(number) + " ";
  text += noun;
  if (number != 1) text += 's';
  return text;
}

}  // namespace wgrad
