#include "model/generate.h"

#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "inference_options.h"

namespace wgrad::cli {
namespace {

struct Options {
  train::InferenceOptions inference;
  SamplingOptions sampling;
  std::string prompt;
  bool raw = false;
  bool json = false;
};

int run(const Options& options) {
  train::LoadedModel loaded = train::load_for_inference(options.inference);
  const std::vector<uint32_t> prompt = encode_prompt(loaded, options.prompt, options.raw);
  model::Generator generator(*loaded.ctx, loaded.model, loaded.adapter_or_null());
  text::StreamDecoder stream(loaded.text.tokenizer);
  model::GenerateOptions generate;
  generate.max_tokens = options.sampling.max_tokens;
  generate.temperature = options.sampling.temperature;
  generate.top_p = options.sampling.top_p;
  generate.top_k = options.sampling.top_k;
  generate.seed = options.sampling.seed;
  generate.stop_ids = loaded.text.stop_ids;
  generate.on_token = [&](uint32_t id) {
    if (!options.json) {
      fmt::print("{}", stream.push(id));
      std::fflush(stdout);
    }
    return true;
  };
  const std::vector<uint32_t> ids = generator.generate(prompt, generate);
  if (options.json) {
    nlohmann::ordered_json json;
    json["ids"] = ids;
    json["text"] = loaded.text.tokenizer.decode(ids, true);
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{}\n", stream.finish());
  }
  return kDone;
}

}  // namespace

Run add_generate(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_inference_options(app, o->inference);
  app.add_option("--prompt", o->prompt, "what the user says, or with --raw the text's beginning")
      ->required();
  app.add_flag("--raw", o->raw, "continue the text as it is, without the chat template");
  add_sampling_options(app, o->sampling);
  app.add_flag("--json", o->json, "one JSON object {\"ids\", \"text\"}");
  return [o] { return run(*o); };
}

}  // namespace wgrad::cli
