#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace wgrad::cli {

/// Puts what `--config FILE` holds between the subcommand's name and the other arguments, so that
/// the command line, which comes later, wins. `arguments` begin with the subcommand. An unknown key
/// is an input error that says what was meant.
std::vector<std::string> expand_config(const CLI::App& program, std::vector<std::string> arguments);

}  // namespace wgrad::cli
