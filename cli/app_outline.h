#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace wgrad::cli {

/// What an option's value can be completed with.
enum class ValueKind { kNone, kChoice, kPath, kOther };

struct OptionOutline {
  std::vector<std::string> names;  ///< with their dashes; of a positional its name
  std::string help, standard;      ///< standard: the default as text
  ValueKind kind = ValueKind::kNone;
  std::vector<std::string> choices;
  bool positional = false;
};

/// A command as its help has it, for shell completion and the manual page.
struct CommandOutline {
  std::string name;  ///< the words after the program's name; empty for the program itself
  std::string help;
  std::vector<OptionOutline> options;
  std::vector<CommandOutline> commands;
};

/// The words of a type "{a,b,c}", as CLI11 describes a set; none of another type.
std::vector<std::string> choices_of(const std::string& type);

CommandOutline outline_of(const CLI::App& app, const std::string& name = {});

/// The commands and those below them, the program itself first.
std::vector<const CommandOutline*> all_commands(const CommandOutline& program);

}  // namespace wgrad::cli
