#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.h"
#include "config_file.h"
#include "help_text.h"
#include "option_names.h"
#include "signals.h"
#include "threads.h"
#include "wgrad/error.h"

namespace {

using wgrad::cli::Run;

struct Command {
  CLI::App* app;
  Run run;
};

std::vector<Command> add_commands(CLI::App& program) {
  using namespace wgrad::cli;
  const std::pair<const char*, const char*> names[] = {
      {"train", "Fine-tune a model on a file of examples"},
      {"eval", "Measure the loss and perplexity of a model on a file"},
      {"data", "Show how rows are tokenized and what counts in the loss"},
      {"generate", "Answer one prompt"},
      {"chat", "Talk with a model"},
      {"merge", "Merge an adapter into its base model"},
      {"export", "Write a model or an adapter as a GGUF file"},
      {"report", "Make report.html of a run's folder"},
      {"verify", "Check every kernel against the CPU's double result on a device"},
      {"bench", "Time every kernel and a training step on a device"},
      {"devices", "List the devices and what wgrad uses of them"},
      {"info", "Describe a model"},
      {"kernels", "Export the kernels as plain WGSL files"},
      {"completion", "Print the completion script of a shell"},
      {"manual", "Print the manual page, for man"},
  };
  Run (*const add[])(CLI::App&) = {add_train,   add_eval,       add_data,    add_generate,
                                   add_chat,    add_merge,      add_export,  add_report,
                                   add_verify,  add_bench,      add_devices, add_info,
                                   add_kernels, add_completion, add_manual};
  std::vector<Command> commands;
  for (size_t i = 0; i < std::size(names); ++i) {
    CLI::App* app = program.add_subcommand(names[i].first, names[i].second);
    app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app->add_option("--config", "YAML file of these options; the command line wins")
        ->type_name("FILE");
    Run run = add[i](*app);
    commands.push_back({app, std::move(run)});
  }
  return commands;
}

void check_command(const std::vector<Command>& commands,
                   const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0].starts_with("-")) return;
  std::string names;
  for (const Command& command : commands) {
    if (command.app->get_name() == arguments[0]) return;
    names += (names.empty() ? "" : ", ") + command.app->get_name();
  }
  throw wgrad::input_error("wgrad", fmt::format("unknown command \"{}\"", arguments[0]),
                           fmt::format("expected one of {}", names), "see `wgrad --help`");
}

int run(int argc, char** argv) {
  CLI::App program("wgrad fine-tunes large language models on any GPU.", "wgrad");
  program.set_version_flag("--version", "wgrad " WGRAD_VERSION);
  program.formatter(std::make_shared<wgrad::cli::HelpText>());
  program.require_subcommand(1);
  program.footer(
      "Exit codes: 0 done, 1 failed while running, 2 bad usage or input,\n"
      "130, 143 or 129 stopped by a signal (train saves a checkpoint, unless a second one comes).");
  const std::vector<Command> commands = add_commands(program);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  check_command(commands, arguments);
  try {
    arguments = wgrad::cli::expand_config(program, std::move(arguments));
    std::reverse(arguments.begin(), arguments.end());
    program.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);
    wgrad::cli::refuse_unknown_option(program);
    std::string name = "wgrad";
    for (const Command& command : commands) {
      if (command.app->parsed()) name += " " + command.app->get_name();
    }
    throw wgrad::input_error(name, error.what(), {}, fmt::format("see `{} --help`", name));
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const int code = command.run();
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
      throw wgrad::runtime_failure("standard output", "could not be written", {},
                                   "check where it leads to, and the disk's free space");
    }
    return code;
  }
  return wgrad::cli::kBadInput;
}

// A file that the program opens must never become its standard output, and so take its messages.
void open_standard_files() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) std::_Exit(1);
  }
}

// Must not throw, wherever the messages lead to.
void print_error(const char* text) { std::fprintf(stderr, "error: %s\n", text); }

bool computes(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  const auto has = [&](std::string_view word) { return std::ranges::count(arguments, word) > 0; };
  if (arguments.empty() || has("-h") || has("--help")) return false;
  constexpr std::string_view kCommands[] = {"train", "eval", "generate", "chat", "merge", "export"};
  return std::ranges::count(kCommands, arguments[0]) > 0;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_files();
  std::signal(SIGXFSZ, SIG_IGN);  // a file over the limit is then a write that fails
  if (computes(argc, argv)) wgrad::cli::wait_politely(argv);
  try {
    wgrad::cli::take_signals();
    return run(argc, argv);
  } catch (const wgrad::Error& error) {
    print_error(error.what());
    return error.kind() == wgrad::ErrorKind::kInput ? wgrad::cli::kBadInput : wgrad::cli::kFailed;
  } catch (const std::bad_alloc&) {
    print_error(
        "memory: the system has none left; lower --batch-size or --max-seq-len, or try --recompute "
        "block");
    return wgrad::cli::kFailed;
  } catch (const std::exception& error) {
    print_error(error.what());
    return wgrad::cli::kFailed;
  }
}
