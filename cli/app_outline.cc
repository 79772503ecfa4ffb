#include "app_outline.h"

#include <CLI/Option.hpp>
#include <algorithm>

namespace wgrad::cli {

std::vector<std::string> choices_of(const std::string& type) {
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  std::vector<std::string> words;
  for (size_t at = open + 1; at < close;) {
    const size_t end = std::min(type.find(',', at), close);
    words.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

namespace {

OptionOutline outline_of(const CLI::Option& option) {
  OptionOutline out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  out.positional = option.get_positional();
  if (out.positional) out.names.push_back(option.get_single_name());
  out.help = option.get_description();
  if (option.get_items_expected_max() == 0) return out;
  out.standard = option.get_default_str();
  const std::string type = option.get_type_name();
  out.choices = choices_of(type);
  if (option.check_lname("device")) out.choices = {"auto", "cpu", "gpu", "software"};
  const bool path = type.starts_with("TEXT") || type == "FILE";
  out.kind = !out.choices.empty() ? ValueKind::kChoice
             : path               ? ValueKind::kPath
                                  : ValueKind::kOther;
  return out;
}

void collect(const CommandOutline& command, std::vector<const CommandOutline*>& all) {
  all.push_back(&command);
  for (const CommandOutline& below : command.commands) collect(below, all);
}

}  // namespace

CommandOutline outline_of(const CLI::App& app, const std::string& name) {
  CommandOutline out{name, app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options()) out.options.push_back(outline_of(*option));
  for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) {
    out.commands.push_back(
        outline_of(*below, name.empty() ? below->get_name() : name + " " + below->get_name()));
  }
  return out;
}

std::vector<const CommandOutline*> all_commands(const CommandOutline& program) {
  std::vector<const CommandOutline*> all;
  collect(program, all);
  return all;
}

}  // namespace wgrad::cli
