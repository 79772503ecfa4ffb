#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "inference_options.h"
#include "model/generate.h"
#include "signals.h"
#include "terminal.h"

namespace wgrad::cli {
namespace {

struct Options {
  train::InferenceOptions inference;
  SamplingOptions sampling;
  std::string system;
};

nlohmann::ordered_json turn(const char* role, const std::string& text) {
  return {{"role", role}, {"content", text}};
}

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

/// One conversation on a terminal (or a script's pipe).
class Chat {
 public:
  explicit Chat(const Options& options)
      : options_(options),
        loaded_(train::load_for_inference(options.inference)),
        generator_(*loaded_.ctx, loaded_.model, loaded_.adapter_or_null()),
        colours_(stdout_is_terminal()) {
    if (!loaded_.text.chat_template) {
      throw input_error(options.inference.model, "the model has no chat template", "chat needs one",
                        "use `wgrad generate --raw`");
    }
    forget();
  }

  int run() {
    fmt::print(stderr, "{}{} on {}. /new begins again, /quit or Ctrl-D ends.{}\n", colours_.dim(),
               options_.inference.model, loaded_.ctx->device_name(), colours_.reset());
    std::string line;
    while (prompt(line)) {
      if (line == "/quit") break;
      if (line == "/new") forget();
      if (line.empty() || line[0] == '/') continue;
      // Ctrl-C ends the answer, not the conversation.
      constexpr int kTerminated = 128 + SIGTERM;
      if (answer(line) == kTerminated) return kTerminated;
    }
    return kDone;
  }

 private:
  bool prompt(std::string& line) {
    if (stdout_is_terminal()) fmt::print("{}>{} ", colours_.bold(), colours_.reset());
    std::fflush(stdout);
    return read_line(std::cin, line);
  }

  void forget() {
    messages_ = nlohmann::ordered_json::array();
    if (!options_.system.empty()) messages_.push_back(turn("system", options_.system));
  }

  /// Returns the exit code of a signal that cut the answer short, or 0.
  int answer(const std::string& line) {
    messages_.push_back(turn("user", line));
    const std::string text = loaded_.text.chat_template->render(messages_, true);
    const std::vector<uint32_t> ids = loaded_.text.tokenizer.encode(text, false).ids;
    text::StreamDecoder stream(loaded_.text.tokenizer);
    const SignalStop interrupt;
    std::string said;
    model::GenerateOptions generate;
    generate.max_tokens = options_.sampling.max_tokens;
    generate.temperature = options_.sampling.temperature;
    generate.top_p = options_.sampling.top_p;
    generate.top_k = options_.sampling.top_k;
    generate.seed = options_.sampling.seed + messages_.size();
    generate.stop_ids = loaded_.text.stop_ids;
    auto show = [&](const std::string& piece) {
      said += piece;
      fmt::print("{}", piece);
      std::fflush(stdout);
    };
    generate.on_token = [&](uint32_t id) {
      show(stream.push(id));
      return !interrupt.stop()->load();
    };
    generator_.generate(ids, generate);
    show(stream.finish());
    fmt::print("\n");
    messages_.push_back(turn("assistant", said));
    return interrupt.exit_code();
  }

  const Options& options_;
  train::LoadedModel loaded_;
  model::Generator generator_;
  Colours colours_;
  nlohmann::ordered_json messages_;
};

}  // namespace

Run add_chat(CLI::App& app) {
  auto o = std::make_shared<Options>();
  o->sampling.max_tokens = 512;
  add_inference_options(app, o->inference);
  app.add_option("--system", o->system, "system message");
  add_sampling_options(app, o->sampling);
  return [o] { return Chat(*o).run(); };
}

}  // namespace wgrad::cli
