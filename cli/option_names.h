#pragma once

#include <CLI/App.hpp>
#include <string>
#include <string_view>

namespace wgrad::cli {

/// What an option that `command` does not have was meant to be, for its error: a name that other
/// trainers use is translated, any other is told the nearest known one. Without dashes in front.
std::string suggest_option(const CLI::App& command, std::string_view name);

/// Throws an input error for the first word of the command line that looks like an option and is
/// none of the command that was named. For after a failed parse.
void refuse_unknown_option(const CLI::App& program);

}  // namespace wgrad::cli
