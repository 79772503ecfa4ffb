#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "inference_options.h"
#include "model/generate.h"
#include "train/inference.h"

namespace wgrad::cli {

/// A conversation's beginning: the system message, if there is one.
nlohmann::ordered_json begin_conversation(const std::string& system);
nlohmann::ordered_json turn(const char* role, const std::string& text);

/// The prompt of the next answer by the model's template.
std::vector<uint32_t> encode_conversation(const train::LoadedModel& loaded,
                                          const nlohmann::ordered_json& messages);

/// The base with one adapter (or none), and its cache. `name` is the adapter's folder.
struct Speaker {
  std::string name;
  std::unique_ptr<model::Generator> generator;
};

/// One a named adapter; the base alone where none is.
std::vector<Speaker> make_speakers(const train::LoadedModel& loaded,
                                   const std::vector<std::string>& adapters);

struct Answer {
  std::vector<uint32_t> ids;  ///< all new tokens, those of a stop string included
  std::string text;           ///< up to the stop string
  model::GenerateStats stats;
};

/// Generates one answer; `show` gets its text as it comes, in whole characters. `stop` may be null.
Answer answer(const train::LoadedModel& loaded, model::Generator& generator,
              const std::vector<uint32_t>& prompt, const AnswerOptions& options,
              const std::function<void(std::string_view)>& show, const std::atomic<bool>* stop);

/// "prompt 12 tokens, 345 tokens/s; answer 128 tokens, 45.6 tokens/s", and that the context is full
/// where it is.
std::string describe(const model::GenerateStats& stats);

}  // namespace wgrad::cli
