#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "answer.h"
#include "command.h"
#include "inference_options.h"
#include "wgrad/error.h"

namespace wgrad::cli {
namespace {

struct Options {
  train::InferenceOptions inference;
  AnswerOptions answer;
  std::string prompt;
  bool raw = false;
  bool json = false;
};

/// All of standard input but one newline at its end.
std::string read_prompt() {
  constexpr size_t kMostBytes = size_t{16} << 20;
  std::string text;
  char part[4096];
  while (std::cin.read(part, sizeof part) || std::cin.gcount() > 0) {
    text.append(part, static_cast<size_t>(std::cin.gcount()));
    if (text.size() > kMostBytes) {
      throw input_error("standard input", "the prompt is longer than 16 MiB", "a prompt",
                        "check what is piped in");
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::vector<uint32_t> encode_prompt(const train::LoadedModel& loaded, const Options& options,
                                    const std::string& prompt) {
  if (options.raw) {
    if (!options.answer.system.empty()) {
      throw input_error("--system", "given with --raw", "a system message needs the chat template",
                        "leave one of them out");
    }
    return loaded.text.tokenizer.encode(prompt, true).ids;
  }
  if (!loaded.text.chat_template) {
    throw input_error("--prompt", "the model has no chat template",
                      "a prompt is one user turn of the template",
                      "add --raw to continue the text");
  }
  nlohmann::ordered_json messages = begin_conversation(options.answer.system);
  messages.push_back(turn("user", prompt));
  return encode_conversation(loaded, messages);
}

nlohmann::ordered_json as_json(const Answer& answer) {
  nlohmann::ordered_json json;
  json["ids"] = answer.ids;
  json["text"] = answer.text;
  return json;
}

int run(const Options& options) {
  const std::string prompt = options.prompt == "-" ? read_prompt() : options.prompt;
  const train::LoadedModel loaded = load_model(options.inference);
  const std::vector<uint32_t> ids = encode_prompt(loaded, options, prompt);
  const std::vector<Speaker> speakers = make_speakers(loaded, options.inference.adapters);
  const bool several = speakers.size() > 1;
  auto answers = nlohmann::ordered_json::array();
  for (const Speaker& speaker : speakers) {
    if (several && !options.json) fmt::print("== {}\n", speaker.name);
    const auto show = [&](std::string_view text) {
      if (options.json) return;
      fmt::print("{}", text);
      std::fflush(stdout);
    };
    const Answer result = answer(loaded, *speaker.generator, ids, options.answer, show, nullptr);
    if (!options.json) fmt::print("\n");
    std::fflush(stdout);
    fmt::print(stderr, "{}\n", describe(result.stats));
    nlohmann::ordered_json json = several ? nlohmann::ordered_json{{"adapter", speaker.name}}
                                          : nlohmann::ordered_json::object();
    json.update(as_json(result));
    answers.push_back(std::move(json));
  }
  if (options.json) {
    const nlohmann::ordered_json json =
        several ? nlohmann::ordered_json{{"answers", std::move(answers)}} : answers.front();
    fmt::print("{}\n", json.dump());
  }
  return kDone;
}

}  // namespace

Run add_generate(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_inference_options(app, o->inference, Adapters::kSeveral);
  app.add_option("--prompt", o->prompt,
                 "what the user says, or with --raw the text's beginning; -: standard input")
      ->required();
  app.add_flag("--raw", o->raw, "continue the text as it is, without the chat template");
  add_answer_options(app, o->answer);
  app.add_flag("--json", o->json,
               "one JSON object {\"ids\", \"text\"}; with several adapters {\"answers\": "
               "[{\"adapter\", \"ids\", \"text\"}]}");
  return [o] { return run(*o); };
}

}  // namespace wgrad::cli
