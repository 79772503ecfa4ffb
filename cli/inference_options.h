#pragma once

#include <CLI/App.hpp>

#include "train/inference.h"

namespace wgrad::cli {

/// --model, --adapter, --device and --dtype of the commands that run a model.
void add_inference_options(CLI::App& app, train::InferenceOptions& options);

/// The ids of a prompt: plain text, or one user turn of the chat template.
std::vector<uint32_t> encode_prompt(const train::LoadedModel& loaded, const std::string& prompt,
                                    bool raw);

/// Draws of `generate` and `chat`.
struct SamplingOptions {
  int64_t max_tokens = 128;
  double temperature = 0.7, top_p = 0.95;
  int64_t top_k = 0;
  uint64_t seed = 0;
};
void add_sampling_options(CLI::App& app, SamplingOptions& options);

}  // namespace wgrad::cli
