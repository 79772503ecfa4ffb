#include "inference_options.h"

#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>

#include "ranges.h"
#include "train/options.h"
#include "train_options.h"

namespace wgrad::cli {

void add_inference_options(CLI::App& app, train::InferenceOptions& options, Adapters adapters) {
  app.add_option("--model", options.model, "Hugging Face folder or .gguf file")->required();
  CLI::Option* adapter =
      app.add_option("--adapter", options.adapters, "PEFT adapter folder")->allow_extra_args(false);
  if (adapters == Adapters::kSeveral) {
    adapter->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->description("PEFT adapter folder; several: each answers");
  }
  add_device_option(app, options.device);
  app.add_option_function<std::string>(
         "--dtype",
         [&options](const std::string& word) {
           for (const auto& [name, value] : train::EnumNames<Precision>::pairs) {
             if (name == word) options.dtype = value;
           }
         },
         "operands of the large products")
      ->check(CLI::IsMember({"auto", "f32", "f16"}))
      ->default_str("auto");
}

train::LoadedModel load_model(const train::InferenceOptions& options) {
  train::LoadedModel loaded = train::load_for_inference(options);
  const std::string note = loaded.model.config.note_on_parts();
  if (!note.empty()) fmt::print(stderr, "{}: {}\n", options.model, note);
  return loaded;
}

void add_answer_options(CLI::App& app, AnswerOptions& o) {
  model::GenerateOptions& g = o.generate;
  app.add_option("--system", o.system, "system message");
  app.add_option("--max-tokens", g.max_tokens, "new tokens at most")
      ->check(AtLeast(1))
      ->capture_default_str();
  app.add_option("--temperature", g.temperature, "0: the likeliest token each time")
      ->check(AtLeast(0))
      ->capture_default_str();
  app.add_option("--top-p", g.top_p, "draw from the likeliest tokens of this probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--top-k", g.top_k, "draw from the k likeliest; 0: all")
      ->check(AtLeast(0))
      ->capture_default_str();
  app.add_option("--min-p", g.min_p, "draw from tokens with this share of the likeliest's chance")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--repetition-penalty", g.repetition_penalty,
                 "above 1 weakens tokens that are there already")
      ->check(AtLeast(0))
      ->capture_default_str();
  app.add_option("--seed", g.seed, "of the draws")->check(AtLeast(0))->capture_default_str();
  app.add_option("--stop", o.stop, "end the text before this string; can be given several times")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace wgrad::cli
