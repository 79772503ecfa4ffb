#include "config_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <CLI/Option.hpp>
#include <algorithm>
#include <optional>
#include <set>

#include "io/json.h"
#include "option_names.h"
#include "wgrad/error.h"

namespace wgrad::cli {
namespace {

std::string scalar_text(const YAML::Node& value, const std::string& where) {
  if (value.IsScalar()) return value.Scalar();
  if (value.IsSequence()) {
    std::string joined;
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) {
        throw input_error(where, "the list holds more than words and numbers",
                          "expected a list of names", "see --help for the option");
      }
      joined += (joined.empty() ? "" : ",") + item.Scalar();
    }
    return joined;
  }
  throw input_error(where, "the value is a map", "expected a word, a number or a list",
                    "see --help for the option");
}

/// Of an option that gathers what it is given, the file's values must not join the command line's.
bool gathers(const CLI::App& command, const std::string& key) {
  return command.get_option("--" + key)->get_multi_option_policy() ==
         CLI::MultiOptionPolicy::TakeAll;
}

bool names_option(const std::vector<std::string>& arguments, const std::string& key) {
  return std::ranges::any_of(arguments, [&](const std::string& word) {
    return word == "--" + key || word.starts_with("--" + key + "=");
  });
}

void add_arguments(const std::string& key, const YAML::Node& value, const std::string& where,
                   bool gathered, std::vector<std::string>& arguments) {
  const std::string text = scalar_text(value, where);
  if (gathered && value.IsSequence() && value.size() > 1) {
    for (const YAML::Node& item : value) {
      arguments.push_back(fmt::format("--{}={}", key, item.Scalar()));
    }
  } else {
    arguments.push_back(fmt::format("--{}={}", key, text));
  }
}

std::vector<std::string> arguments_from(const std::string& path, const CLI::App& command,
                                        const std::vector<std::string>& command_line) {
  constexpr size_t kMostBytes = size_t{1} << 16;  // hostile YAML takes yaml-cpp quadratic time
  const std::string text = io::read_text_file(path, kMostBytes);
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw input_error(fmt::format("{}:{}:{}", path, error.mark.line + 1, error.mark.column + 1),
                      error.msg, "expected YAML", "mend the file");
  }
  if (!root.IsMap()) {
    throw input_error(path, "is not a map of options", "expected lines \"name: value\"",
                      "mend the file");
  }
  std::vector<std::string> arguments;
  std::set<std::string> seen;
  for (const auto& entry : root) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : std::string();
    const std::string where = fmt::format("{}:{}", path, entry.first.Mark().line + 1);
    if (key.empty() || key == "config" || key == "help" ||
        !command.get_option_no_throw("--" + key)) {
      throw input_error(where, fmt::format("unknown key \"{}\"", key.substr(0, 80)),
                        suggest_option(command, key),
                        fmt::format("see `wgrad {} --help`", command.get_name()));
    }
    if (!seen.insert(key).second) {
      throw input_error(where, fmt::format("the key \"{}\" is given twice", key),
                        "expected every option once", "remove one of them");
    }
    const bool gathered = gathers(command, key);
    if (entry.second.IsNull() || (gathered && names_option(command_line, key))) continue;
    add_arguments(key, entry.second, where, gathered, arguments);
  }
  return arguments;
}

}  // namespace

std::vector<std::string> expand_config(const CLI::App& program,
                                       std::vector<std::string> arguments) {
  if (arguments.empty()) return arguments;
  const std::vector<const CLI::App*> named = program.get_subcommands(
      [&](const CLI::App* command) { return command->get_name() == arguments[0]; });
  if (named.empty()) return arguments;
  std::optional<std::string> path;
  for (size_t i = 1; i < arguments.size(); ++i) {
    std::optional<std::string> found;
    if (arguments[i] == "--config" && i + 1 < arguments.size()) found = arguments[i + 1];
    if (arguments[i].starts_with("--config=")) found = arguments[i].substr(9);
    if (!found) continue;
    if (path || found->empty()) {
      throw input_error("--config", path ? "given twice" : "names no file",
                        "expected one YAML file of options", "give its path");
    }
    path = found;
  }
  if (!path) return arguments;
  const std::vector<std::string> more = arguments_from(*path, *named[0], arguments);
  arguments.insert(arguments.begin() + 1, more.begin(), more.end());
  return arguments;
}

}  // namespace wgrad::cli
