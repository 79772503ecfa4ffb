#include "wgrad/error.h"

#include <cstddef>

namespace wgrad {
namespace {

constexpr std::size_t kMostPartBytes = 1200;

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// What comes from a file can be long, and can hold what a terminal obeys: one printable line of it.
std::string printable(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const bool cut = text.size() > kMostPartBytes;
  std::size_t end = cut ? kMostPartBytes : text.size();
  while (cut && end > 0 && continues_character(text[end])) --end;
  std::string out;
  for (std::size_t i = 0; i < end; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool next_controls =
        byte == 0xc2 && i + 1 < end && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f || next_controls) {
      const auto shown = next_controls ? static_cast<unsigned char>(text[++i]) : byte;
      out.append("\\x").append({kDigits[shown >> 4], kDigits[shown & 15]});
    } else {
      out += text[i];
    }
  }
  return cut ? out + "..." : out;
}

std::string compose(ErrorKind kind, std::string_view where, std::string_view seen,
                    std::string_view expected, std::string_view action) {
  std::string text;
  std::string_view before = "";
  for (std::string_view part : {where, seen, expected, action}) {
    if (part.empty() && before != "") continue;
    text.append(before).append(kind == ErrorKind::kInput ? printable(part) : std::string(part));
    before = before.empty() ? ": " : "; ";
  }
  return text;
}

}  // namespace

Error::Error(ErrorKind kind, std::string_view where, std::string_view seen,
             std::string_view expected, std::string_view action)
    : std::runtime_error(compose(kind, where, seen, expected, action)), kind_(kind) {}

Error input_error(std::string_view where, std::string_view seen, std::string_view expected,
                  std::string_view action) {
  return Error(ErrorKind::kInput, where, seen, expected, action);
}

Error runtime_failure(std::string_view where, std::string_view seen, std::string_view expected,
                      std::string_view action) {
  return Error(ErrorKind::kRuntime, where, seen, expected, action);
}

}  // namespace wgrad
