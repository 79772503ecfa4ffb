#include "help_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/Option.hpp>

#include "app_outline.h"

namespace wgrad::cli {
namespace {

/// What CLI11 makes of a type and its check: "TEXT:{a,b}", "INT:1 or more", "INT:INT in [1 - 9]".
std::string value_text(const std::string& type) {
  if (const auto choices = choices_of(type); !choices.empty()) {
    return fmt::format("{}", fmt::join(choices, "|"));
  }
  const size_t colon = type.find(':');
  if (colon == std::string::npos) return type;
  const std::string name = type.substr(0, colon), check = type.substr(colon + 1);
  return check.starts_with(name) ? check : name + ", " + check;
}

}  // namespace

std::string HelpText::make_option_name(const CLI::Option* option, bool positional) const {
  std::string names = CLI::Formatter::make_option_name(option, positional);
  constexpr std::string_view kTurnsOff = "{false}";
  if (const size_t at = names.find(kTurnsOff); at != std::string::npos) {
    names.erase(at, kTurnsOff.size());
  }
  return names;
}

std::string HelpText::make_option_opts(const CLI::Option* option) const {
  std::string text;
  if (option->get_type_size() != 0) {
    const std::string value = value_text(option->get_type_name());
    if (!value.empty()) text += " " + value;
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
    if (!option->get_default_str().empty()) {
      text += fmt::format(" [{}]", option->get_default_str());
    }
    if (option->get_required()) text += ", required";
  }
  for (const CLI::Option* other : option->get_excludes()) {
    text += fmt::format(", not with {}", other->get_name());
  }
  return text;
}

}  // namespace wgrad::cli
