#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "answer.h"
#include "command.h"
#include "inference_options.h"
#include "signals.h"
#include "terminal.h"
#include "wgrad/error.h"

namespace wgrad::cli {
namespace {

struct Options {
  train::InferenceOptions inference;
  AnswerOptions answer;
};

constexpr const char* kHelp =
    "/reset         forget the conversation\n"
    "/system TEXT   forget it and begin with this system message; without TEXT, with none\n"
    "/quit          end (as Ctrl-D)\n"
    "/help          this\n"
    "Ctrl-C ends an answer. A message that begins with // is sent with one / less.\n";

/// Reads up to a newline or the end; false where nothing is left.
bool read_line(std::istream& in, std::string& line) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  using Traits = std::istream::traits_type;
  line.clear();
  for (int c = in.rdbuf()->sbumpc(); c != Traits::eof(); c = in.rdbuf()->sbumpc()) {
    if (c == '\n') return true;
    if (line.size() == kMostBytes) {
      throw input_error("standard input", "a line is longer than 16 MiB", "one message a line",
                        "check what is piped in");
    }
    line.push_back(Traits::to_char_type(c));
  }
  return !line.empty();
}

/// A conversation with each adapter, on a terminal (or a script's pipe).
class Chat {
 public:
  explicit Chat(const Options& options)
      : options_(options),
        loaded_(load_model(options.inference)),
        speakers_(make_speakers(loaded_, options.inference.adapters)),
        system_(options.answer.system),
        colours_(stdout_is_terminal()) {
    if (!loaded_.text.chat_template) {
      throw input_error(options.inference.model, "the model has no chat template", "chat needs one",
                        "use `wgrad generate --raw`");
    }
    forget();
  }

  int run() {
    say(fmt::format("{} on {}. /help lists the commands, /quit or Ctrl-D ends.",
                    options_.inference.model, loaded_.ctx->device_name()));
    std::string line;
    while (prompt(line)) {
      if (line == "/quit") break;
      if (line.starts_with('/') && !line.starts_with("//")) {
        command(line);
        continue;
      }
      if (line.starts_with("//")) line.erase(0, 1);
      // Ctrl-C ends the answer, not the conversation.
      constexpr int kTerminated = 128 + SIGTERM;
      if (!line.empty() && answer_all(line) == kTerminated) return kTerminated;
    }
    return kDone;
  }

 private:
  void say(const std::string& text) const {
    fmt::print(stderr, "{}{}{}\n", colours_.dim(), text, colours_.reset());
  }

  bool prompt(std::string& line) {
    if (stdout_is_terminal()) fmt::print("{}>{} ", colours_.bold(), colours_.reset());
    std::fflush(stdout);
    return read_line(std::cin, line);
  }

  void command(const std::string& line) {
    constexpr std::string_view kSystem = "/system";
    if (line == "/reset" || line == "/new") {
      forget();
    } else if (line == kSystem || line.starts_with(std::string(kSystem) + " ")) {
      system_ = line.size() > kSystem.size() ? line.substr(kSystem.size() + 1) : std::string();
      forget();
    } else if (line == "/help") {
      fmt::print(stderr, "{}", kHelp);
    } else {
      say(fmt::format("{} is no command; /help lists them", line.substr(0, line.find(' '))));
    }
  }

  void forget() { conversations_.assign(speakers_.size(), begin_conversation(system_)); }

  /// Returns the exit code of a signal that cut the answers short, or 0.
  int answer_all(const std::string& line) {
    const SignalStop interrupt;
    for (size_t i = 0; i < speakers_.size() && interrupt.exit_code() == 0; ++i) {
      if (speakers_.size() > 1) {
        fmt::print("{}== {}{}\n", colours_.bold(), speakers_[i].name, colours_.reset());
      }
      answer_one(speakers_[i], conversations_[i], line, interrupt);
    }
    return interrupt.exit_code();
  }

  void answer_one(const Speaker& speaker, nlohmann::ordered_json& messages, const std::string& line,
                  const SignalStop& interrupt) {
    messages.push_back(turn("user", line));
    const std::vector<uint32_t> ids = encode_conversation(loaded_, messages);
    const int64_t most = loaded_.model.config.max_positions;
    if (static_cast<int64_t>(ids.size()) >= most) {
      messages.erase(messages.size() - 1);
      say(
          fmt::format("the conversation would have {} tokens, and the model's context holds {}: "
                      "/reset begins anew, or send a shorter message",
                      ids.size(), most));
      return;
    }
    AnswerOptions options = options_.answer;
    options.generate.seed += messages.size();
    const auto show = [](std::string_view text) {
      fmt::print("{}", text);
      std::fflush(stdout);
    };
    const Answer result = answer(loaded_, *speaker.generator, ids, options, show, interrupt.stop());
    fmt::print("\n");
    std::fflush(stdout);
    messages.push_back(turn("assistant", result.text));
    say(describe(result.stats));
  }

  const Options& options_;
  train::LoadedModel loaded_;
  std::vector<Speaker> speakers_;
  std::string system_;
  Colours colours_;
  std::vector<nlohmann::ordered_json> conversations_;  ///< of each speaker
};

}  // namespace

Run add_chat(CLI::App& app) {
  auto o = std::make_shared<Options>();
  o->answer.generate.max_tokens = 512;
  add_inference_options(app, o->inference, Adapters::kSeveral);
  add_answer_options(app, o->answer);
  return [o] { return Chat(*o).run(); };
}

}  // namespace wgrad::cli
