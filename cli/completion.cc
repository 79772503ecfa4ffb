#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <memory>

#include "app_outline.h"
#include "command.h"

namespace wgrad::cli {
namespace {

std::string replaced(std::string text, std::string_view from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// In single quotes, for any of the shells.
std::string quoted(const std::string& text) { return "'" + replaced(text, "'", "'\\''") + "'"; }

std::vector<std::string> dashed_names(const CommandOutline& command) {
  std::vector<std::string> names;
  for (const OptionOutline& option : command.options) {
    if (!option.positional) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

std::vector<std::string> names_below(const CommandOutline& command) {
  std::vector<std::string> names;
  for (const CommandOutline& below : command.commands) {
    names.push_back(below.name.substr(below.name.rfind(' ') + 1));
  }
  return names;
}

/// The words that may stand without a dash.
std::vector<std::string> positional_choices(const CommandOutline& command) {
  std::vector<std::string> choices;
  for (const OptionOutline& option : command.options) {
    if (!option.positional || option.kind != ValueKind::kChoice) continue;
    choices.insert(choices.end(), option.choices.begin(), option.choices.end());
  }
  return choices;
}

bool takes_path(const CommandOutline& command) {
  return std::any_of(command.options.begin(), command.options.end(),
                     [](const OptionOutline& option) {
                       return option.positional && option.kind == ValueKind::kPath;
                     });
}

std::string bash_values(const CommandOutline& command) {
  std::string cases;
  for (const OptionOutline& option : command.options) {
    if (option.positional || option.kind == ValueKind::kNone) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : option.names) {
      patterns.push_back(quoted(command.name + ":" + name));
    }
    const std::string action =
        option.kind == ValueKind::kChoice
            ? fmt::format("words={}", quoted(fmt::format("{}", fmt::join(option.choices, " "))))
        : option.kind == ValueKind::kPath ? "files=1"
                                          : "return";
    cases += fmt::format("    {}) {} ;;\n", fmt::join(patterns, "|"), action);
  }
  return cases;
}

std::string bash(const CommandOutline& program) {
  std::string commands, values, words;
  for (const CommandOutline* command : all_commands(program)) {
    if (!command->name.empty()) {
      commands += fmt::format("{}{}", commands.empty() ? "" : "|", quoted(command->name));
    }
    values += bash_values(*command);
    std::vector<std::string> all = names_below(*command);
    const std::vector<std::string> dashed = dashed_names(*command);
    all.insert(all.end(), dashed.begin(), dashed.end());
    const std::vector<std::string> choices = positional_choices(*command);
    all.insert(all.end(), choices.begin(), choices.end());
    words += fmt::format("      {}) words={}{} ;;\n", quoted(command->name),
                         quoted(fmt::format("{}", fmt::join(all, " "))),
                         takes_path(*command) ? " files=1" : "");
  }
  return fmt::format(R"(# Completion of wgrad for bash. To have it: source <(wgrad completion bash)
_wgrad() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}
  local command='' words='' files='' option=1 i
  # bash takes the = of --option=value as a word of its own.
  if [[ $word == '=' ]]; then
    word=''
  elif [[ $before == '=' ]]; then
    before=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "${{command:+$command }}${{COMP_WORDS[i]}}" in
    {}) command="${{command:+$command }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$command:$before" in
{}    *) option='' ;;
  esac
  if [[ ! $option ]]; then
    case "$command" in
{}    esac
    [[ $word != -* ]] || files=''
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  if [[ $files ]]; then
    compopt -o filenames 2>/dev/null
    local found
    mapfile -t found < <(compgen -f -- "$word")
    COMPREPLY+=("${{found[@]}}")
  fi
}}
complete -F _wgrad wgrad
)",
                     commands, values, words);
}

std::string zsh_text(const std::string& text) {
  std::string out = text;
  for (const char* c : {"\\", "[", "]", ":"}) out = replaced(out, c, std::string("\\") + c);
  return out;
}

std::string zsh_value(const OptionOutline& option) {
  switch (option.kind) {
    case ValueKind::kNone:
      return {};
    case ValueKind::kChoice:
      return fmt::format(":value:({})",
                         zsh_text(fmt::format("{}", fmt::join(option.choices, " "))));
    case ValueKind::kPath:
      return ":file:_files";
    case ValueKind::kOther:
      break;
  }
  return ":value: ";
}

std::string zsh_arguments(const CommandOutline& command) {
  std::string lines;
  for (const OptionOutline& option : command.options) {
    if (option.positional) {
      lines += fmt::format(
          " \\\n      {}",
          quoted(":" + option.names[0] + zsh_value(option).substr(zsh_value(option).rfind(':'))));
      continue;
    }
    for (const std::string& name : option.names) {
      const bool joins = option.kind != ValueKind::kNone && name.starts_with("--");
      lines += fmt::format(" \\\n      {}",
                           quoted(fmt::format("{}{}[{}]{}", name, joins ? "=" : "",
                                              zsh_text(option.help), zsh_value(option))));
    }
  }
  if (!command.commands.empty()) {
    lines +=
        fmt::format(" \\\n      {}",
                    quoted(fmt::format("1:command:({})", fmt::join(names_below(command), " "))));
  }
  return lines;
}

std::string zsh(const CommandOutline& program) {
  std::string commands, cases;
  for (const CommandOutline& command : program.commands) {
    commands += fmt::format(" {}", quoted(zsh_text(command.name) + ":" + command.help));
    cases +=
        fmt::format("    {})\n    _arguments{}\n    ;;\n", command.name, zsh_arguments(command));
  }
  return fmt::format(R"(#compdef wgrad
# Completion of wgrad for zsh: save it as _wgrad in a folder of $fpath, or
# source <(wgrad completion zsh)
_wgrad() {{
  local context state line
  typeset -A opt_args
  local -a commands=({})
  _arguments -C '--help[print the help]' '--version[print the version]' '1: :->command' '*:: :->rest'
  case $state in
  command) _describe command commands ;;
  rest)
    case $line[1] in
{}    esac
    ;;
  esac
}}
if [[ $funcstack[1] == _wgrad ]]; then _wgrad "$@"; else compdef _wgrad wgrad; fi
)",
                     commands, cases);
}

std::string fish_option(const CommandOutline& command, const OptionOutline& option) {
  std::string lines;
  for (const std::string& name : option.names) {
    const bool is_long = name.starts_with("--");
    lines += fmt::format("complete -c wgrad -n {} {} {} -d {}",
                         quoted("__fish_seen_subcommand_from " + command.name),
                         is_long ? "-l" : "-s", name.substr(is_long ? 2 : 1), quoted(option.help));
    if (option.kind == ValueKind::kChoice) {
      lines += fmt::format(" -x -a {}", quoted(fmt::format("{}", fmt::join(option.choices, " "))));
    } else if (option.kind != ValueKind::kNone) {
      lines += option.kind == ValueKind::kPath ? " -r -F" : " -x";
    }
    lines += "\n";
  }
  return lines;
}

std::string fish(const CommandOutline& program) {
  std::string text =
      "# Completion of wgrad for fish. To have it: wgrad completion fish | source\n"
      "complete -c wgrad -f\n";
  for (const CommandOutline& command : program.commands) {
    text += fmt::format("complete -c wgrad -n __fish_use_subcommand -a {} -d {}\n", command.name,
                        quoted(command.help));
    for (const OptionOutline& option : command.options) {
      if (!option.positional) text += fish_option(command, option);
    }
    const std::string inside = quoted("__fish_seen_subcommand_from " + command.name);
    for (const std::string& name : names_below(command)) {
      text += fmt::format("complete -c wgrad -n {} -a {}\n", inside, name);
    }
    if (takes_path(command)) text += fmt::format("complete -c wgrad -n {} -F\n", inside);
  }
  return text;
}

}  // namespace

Run add_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  return [&app, shell] {
    const CommandOutline program = outline_of(*app.get_parent());
    fmt::print("{}", *shell == "bash"  ? bash(program)
                     : *shell == "zsh" ? zsh(program)
                                       : fish(program));
    return kDone;
  };
}

}  // namespace wgrad::cli
