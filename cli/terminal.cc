#include "terminal.h"

#include <fmt/format.h>
#include <locale.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace wgrad::cli {
namespace {

bool terminal_is_dumb() {
  const char* term = std::getenv("TERM");
  return term && std::string_view(term) == "dumb";
}

/// The character that the text begins with, which is taken off it; U+FFFD for a byte that begins
/// none.
char32_t take_character(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  char32_t c = length == 1 ? first : first & (0x7Fu >> length);
  bool whole = first < 0x80 || (first >= 0xC2 && first < 0xF5 && text.size() >= length);
  for (size_t i = 1; whole && i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    whole = (next & 0xC0) == 0x80;
    c = c << 6 | (next & 0x3F);
  }
  text.remove_prefix(whole ? length : 1);
  return whole ? c : 0xFFFD;
}

/// Columns of one character; -1 for one that a terminal would obey.
int character_width(char32_t c) {
  static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (c < 0x20 || (c >= 0x7F && c < 0xA0)) return -1;
  if (!utf8) return 1;
  const locale_t before = uselocale(utf8);
  const int width = ::wcwidth(static_cast<wchar_t>(c));
  uselocale(before);
  return width;
}

}  // namespace

bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }
bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }

int terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

void say(const std::string& text) { std::fputs(text.c_str(), stderr); }

bool stderr_renews_lines() { return stderr_is_terminal() && !terminal_is_dumb(); }

int display_width(std::string_view utf8) {
  int columns = 0;
  while (!utf8.empty()) columns += std::max(0, character_width(take_character(utf8)));
  return columns;
}

std::string printable(std::string_view utf8) {
  std::string out;
  while (!utf8.empty()) {
    const std::string_view before = utf8;
    const bool shown = character_width(take_character(utf8)) >= 0;
    out += shown ? before.substr(0, before.size() - utf8.size()) : " ";
  }
  return out;
}

std::string fit(std::string_view utf8, int columns) {
  if (display_width(utf8) <= columns) return std::string(utf8);
  if (columns < 1) return {};
  std::string_view rest = utf8;
  size_t kept = 0;
  int used = 0;
  while (!rest.empty()) {
    used += std::max(0, character_width(take_character(rest)));
    if (used > columns - 1) break;
    kept = utf8.size() - rest.size();
  }
  return std::string(utf8.substr(0, kept)) + "…";
}

Colours::Colours(bool on) {
  const char* no_color = std::getenv("NO_COLOR");
  on_ = on && (!no_color || !*no_color) && !terminal_is_dumb();
}

Colours::Colours(ColourMode mode, bool terminal) : Colours(terminal) {
  if (mode != ColourMode::kAuto) on_ = mode == ColourMode::kAlways;
}

std::string format_bytes(int64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (b >= 1e9) return fmt::format("{:.2f} GB", b / 1e9);
  if (b >= 1e6) return fmt::format("{:.1f} MB", b / 1e6);
  return fmt::format("{:.1f} kB", b / 1e3);
}

std::string format_seconds(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "-";
  const int64_t s = std::llround(seconds);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string format_count(double count) {
  if (count >= 1e9) return fmt::format("{:.2f}B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f}M", count / 1e6);
  if (count >= 1e4) return fmt::format("{:.1f}k", count / 1e3);
  return fmt::format("{:.0f}", count);
}

std::string format_value(double value, int decimals) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : "non-finite";
}

}  // namespace wgrad::cli
