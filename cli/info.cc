#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "data/model_text.h"
#include "model/adapter.h"
#include "model/config.h"
#include "ranges.h"
#include "terminal.h"
#include "train/weight_bytes.h"
#include "train_options.h"

namespace wgrad::cli {
namespace {

struct Options {
  std::string model;
  int64_t rank = 16;
  bool json = false;
};

/// Parameters of a LoRA adapter on all linear layers.
int64_t lora_parameters(const model::ModelConfig& c, int64_t rank) {
  int64_t a_layer = 0;
  for (model::Projection p : c.projections()) {
    a_layer += rank * (c.in_features(p) + c.out_features(p));
  }
  return a_layer * c.layers;
}

int run(const Options& options) {
  const model::ModelConfig c = model::read_config(options.model);
  const text::TextAssets text = data::load_model_text(options.model);
  const int64_t parameters = c.parameters();
  const int64_t trainable = lora_parameters(c, options.rank);
  nlohmann::ordered_json json;
  json["model_type"] = c.model_type;
  if (!c.other_parts.empty()) json["other_parts"] = c.other_parts;
  json["parameters"] = parameters;
  json["layers"] = c.layers;
  json["hidden_size"] = c.hidden_size;
  json["intermediate_size"] = c.intermediate_size;
  json["heads"] = c.heads;
  json["kv_heads"] = c.kv_heads;
  json["head_dim"] = c.head_dim;
  json["max_positions"] = c.max_positions;
  json["vocab_size"] = c.vocab_size;
  json["tied_embeddings"] = c.tied_embeddings;
  json["tokenizer_size"] = text.tokenizer.vocabulary_size();
  json["bos_token"] = text.bos_token;
  json["eos_token"] = text.eos_token;
  json["stop_ids"] = text.stop_ids;
  json["chat_template"] = text.chat_template.has_value();
  json["lora_rank"] = options.rank;
  json["lora_parameters"] = trainable;
  json["trainable_share"] = static_cast<double>(trainable) / static_cast<double>(parameters);
  const train::WeightBytes bytes = train::weight_bytes(c);
  json["weight_bytes"] = {
      {"f32", bytes.f32}, {"f16", bytes.f16}, {"nf4", bytes.nf4}, {"nf4_f16", bytes.nf4_f16}};
  if (options.json) {
    fmt::print("{}\n", json.dump());
    return kDone;
  }
  fmt::print(
      "{}: {} parameters\n"
      "  layers      {} of hidden size {}, intermediate size {}\n"
      "  attention   {} heads on {} key-value heads of {}{}{}\n"
      "  context     {} tokens, rope theta {}\n"
      "  vocabulary  {} ({} in the tokenizer), output layer {}\n"
      "  tokens      bos \"{}\", eos \"{}\", generation stops at {} ids\n"
      "  template    {}\n"
      "  LoRA        rank {}: {} trainable ({:.2f}%)\n"
      "  weights     {} in f32, {} in f16; with --method qlora {}, or {} with f16 operands\n"
      "              (embeddings are never in NF4; see train --plan for a run's memory)\n",
      c.model_type, format_count(static_cast<double>(parameters)), c.layers, c.hidden_size,
      c.intermediate_size, c.heads, c.kv_heads, c.head_dim, c.qkv_bias ? ", biases" : "",
      c.qk_norm != model::QkNorm::kNone ? ", q/k norm" : "", c.max_positions, c.ropes[0].theta,
      c.vocab_size, text.tokenizer.vocabulary_size(), c.tied_embeddings ? "tied" : "its own",
      text.bos_token, text.eos_token, text.stop_ids.size(),
      text.chat_template ? fmt::format("chat, {} characters", text.chat_template->source().size())
                         : std::string("none"),
      options.rank, format_count(static_cast<double>(trainable)),
      100.0 * static_cast<double>(trainable) / static_cast<double>(parameters),
      format_bytes(bytes.f32), format_bytes(bytes.f16), format_bytes(bytes.nf4),
      format_bytes(bytes.nf4_f16));
  if (!c.other_parts.empty()) fmt::print("  beside it   {}\n", c.note_on_parts());
  return kDone;
}

}  // namespace

Run add_info(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("--model", o->model, "Hugging Face folder or .gguf file")->required();
  app.add_option("--rank", o->rank, "LoRA rank for the trainable share")
      ->check(AtLeast(1))
      ->capture_default_str();
  app.add_flag("--json", o->json, "one JSON object");
  return [o] { return run(*o); };
}

}  // namespace wgrad::cli
