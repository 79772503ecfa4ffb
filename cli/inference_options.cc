#include "inference_options.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <nlohmann/json.hpp>

#include "ranges.h"
#include "train/options.h"
#include "train_options.h"

namespace wgrad::cli {

void add_inference_options(CLI::App& app, train::InferenceOptions& options) {
  app.add_option("--model", options.model, "Hugging Face folder or .gguf file")->required();
  app.add_option("--adapter", options.adapter, "PEFT adapter folder");
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

std::vector<uint32_t> encode_prompt(const train::LoadedModel& loaded, const std::string& prompt,
                                    bool raw) {
  if (raw) return loaded.text.tokenizer.encode(prompt, true).ids;
  if (!loaded.text.chat_template) {
    throw input_error("--prompt", "the model has no chat template",
                      "a prompt is one user turn of the template",
                      "add --raw to continue the text");
  }
  const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", prompt}}};
  return loaded.text.tokenizer.encode(loaded.text.chat_template->render(messages, true), false).ids;
}

void add_sampling_options(CLI::App& app, SamplingOptions& o) {
  app.add_option("--max-tokens", o.max_tokens, "new tokens at most")
      ->check(AtLeast(1))
      ->capture_default_str();
  app.add_option("--temperature", o.temperature, "0: the likeliest token each time")
      ->check(AtLeast(0))
      ->capture_default_str();
  app.add_option("--top-p", o.top_p, "draw from the likeliest tokens of this probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--top-k", o.top_k, "draw from the k likeliest; 0: all")
      ->check(AtLeast(0))
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of the draws")->check(AtLeast(0))->capture_default_str();
}

}  // namespace wgrad::cli
