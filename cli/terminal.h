#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace wgrad::cli {

/// Whether standard error (output) is a terminal; its width in columns.
bool stderr_is_terminal();
bool stdout_is_terminal();
int terminal_width();

/// Whether standard error is a terminal that can clear a line: not where TERM is "dumb".
bool stderr_renews_lines();

/// Prints to standard error, whoever reads there or reads no more: a run outlives its reader.
void say(const std::string& text);

/// Columns that a text takes on a terminal; wide characters take two.
int display_width(std::string_view utf8);
/// The text in one line without what a terminal would obey: control characters become blanks.
std::string printable(std::string_view utf8);
/// As much of a printable text as fits, an ellipsis last where it was cut.
std::string fit(std::string_view utf8, int columns);

enum class ColourMode { kAuto, kAlways, kNever };

/// ANSI colour codes, or nothing where `on` is false, NO_COLOR is set or TERM is "dumb".
class Colours {
 public:
  explicit Colours(bool on);
  /// kAuto: as above with whether the output is a `terminal`; else what the user said.
  Colours(ColourMode mode, bool terminal);
  std::string_view green() const { return on_ ? "\x1b[32m" : ""; }
  std::string_view dim() const { return on_ ? "\x1b[2m" : ""; }
  std::string_view bold() const { return on_ ? "\x1b[1m" : ""; }
  std::string_view yellow() const { return on_ ? "\x1b[33m" : ""; }
  std::string_view red() const { return on_ ? "\x1b[31m" : ""; }
  std::string_view reset() const { return on_ ? "\x1b[0m" : ""; }
  bool on() const { return on_; }

 private:
  bool on_;
};

std::string format_bytes(int64_t bytes);     ///< "1.24 GB"
std::string format_seconds(double seconds);  ///< "1:02:03", "4:05"
std::string format_count(double count);      ///< "135M", "1.2k"
/// With so many decimals, or "non-finite".
std::string format_value(double value, int decimals);

}  // namespace wgrad::cli
