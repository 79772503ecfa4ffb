#include "answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/counted.h"
#include "text/stop_strings.h"
#include "wgrad/error.h"

namespace wgrad::cli {

nlohmann::ordered_json turn(const char* role, const std::string& text) {
  return {{"role", role}, {"content", text}};
}

nlohmann::ordered_json begin_conversation(const std::string& system) {
  auto messages = nlohmann::ordered_json::array();
  if (!system.empty()) messages.push_back(turn("system", system));
  return messages;
}

std::vector<uint32_t> encode_conversation(const train::LoadedModel& loaded,
                                          const nlohmann::ordered_json& messages) {
  const std::string text = loaded.text.chat_template->render(messages, true);
  return loaded.text.tokenizer.encode(text, false).ids;
}

std::vector<Speaker> make_speakers(const train::LoadedModel& loaded,
                                   const std::vector<std::string>& adapters) {
  const auto speaker = [&](const std::string& name, const model::Adapter* adapter) {
    return Speaker{name, std::make_unique<model::Generator>(*loaded.ctx, loaded.model, adapter)};
  };
  std::vector<Speaker> speakers;
  for (size_t i = 0; i < adapters.size(); ++i) {
    speakers.push_back(speaker(adapters[i], &loaded.adapters[i]));
  }
  if (speakers.empty()) speakers.push_back(speaker({}, nullptr));
  return speakers;
}

Answer answer(const train::LoadedModel& loaded, model::Generator& generator,
              const std::vector<uint32_t>& prompt, const AnswerOptions& options,
              const std::function<void(std::string_view)>& show, const std::atomic<bool>* stop) {
  if (std::ranges::count(options.stop, "") > 0) {
    throw input_error("--stop", "an empty string", "a string that ends the text");
  }
  Answer result;
  text::StreamDecoder stream(loaded.text.tokenizer);
  text::StopStrings stops(options.stop);
  const auto pass = [&](const std::string& text) {
    if (text.empty()) return;
    result.text += text;
    show(text);
  };
  model::GenerateOptions generate = options.generate;
  generate.stop_ids = loaded.text.stop_ids;
  generate.on_token = [&](uint32_t id) {
    pass(stops.push(stream.push(id)));
    return !stops.stopped() && (stop == nullptr || !stop->load());
  };
  result.ids = generator.generate(prompt, generate);
  pass(stops.push(stream.finish()));
  pass(stops.finish());
  result.stats = generator.stats();
  return result;
}

std::string describe(const model::GenerateStats& stats) {
  const auto speed = [](int64_t tokens, double seconds) {
    return tokens > 0 && seconds > 0
               ? fmt::format(", {:.1f} tokens/s", static_cast<double>(tokens) / seconds)
               : std::string();
  };
  const bool full = stats.ending == model::Ending::kContextFull;
  return fmt::format("prompt {}{}; answer {}{}{}", counted(stats.prompt_tokens, "token"),
                     speed(stats.prompt_tokens, stats.prompt_seconds),
                     counted(stats.new_tokens, "token"), speed(stats.new_tokens - 1, stats.seconds),
                     full ? "; it ends here because the model's context is full" : "");
}

}  // namespace wgrad::cli
