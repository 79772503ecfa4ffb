#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "model/generate.h"
#include "train/inference.h"

namespace wgrad::cli {

enum class Adapters { kOne, kSeveral };

/// --model, --adapter, --device and --dtype of the commands that run a model.
void add_inference_options(CLI::App& app, train::InferenceOptions& options, Adapters adapters);

/// Loads what they name; says on standard error what of it is not used.
train::LoadedModel load_model(const train::InferenceOptions& options);

/// What `generate` and `chat` share: how a text is drawn and where it ends.
struct AnswerOptions {
  model::GenerateOptions generate;
  std::vector<std::string> stop;
  std::string system;
};
void add_answer_options(CLI::App& app, AnswerOptions& options);

}  // namespace wgrad::cli
