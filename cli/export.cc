#include "model/export.h"

#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <memory>
#include <utility>

#include "command.h"
#include "terminal.h"
#include "wgrad/error.h"

namespace wgrad::cli {
namespace {

struct Options {
  std::string model, adapter, out, type;
  bool adapter_only = false;
};

constexpr std::pair<const char*, model::GgufType> kTypes[] = {
    {"f32", model::GgufType::kF32},   {"f16", model::GgufType::kF16},
    {"bf16", model::GgufType::kBF16}, {"q8_0", model::GgufType::kQ8_0},
    {"q4_0", model::GgufType::kQ4_0}, {"q4_k", model::GgufType::kQ4_K},
};

model::GgufType type_named(const std::string& name) {
  for (const auto& [known, type] : kTypes) {
    if (name == known) return type;
  }
  return model::GgufType::kKeep;
}

int run(const Options& options) {
  if (options.adapter_only && options.adapter.empty()) {
    throw input_error("--adapter-only", "there is no --adapter", "an adapter's folder");
  }
  const model::GgufType type = type_named(options.type);
  const model::ExportSummary summary =
      options.adapter_only
          ? model::export_adapter_gguf(options.model, options.adapter, type, options.out)
          : model::export_gguf(options.model, options.adapter, type, options.out);
  for (const std::string& note : summary.notes) fmt::print(stderr, "note: {}\n", note);
  fmt::print(stderr, "wrote {}: {}\n", options.out,
             format_bytes(static_cast<int64_t>(summary.bytes)));
  return kDone;
}

}  // namespace

Run add_export(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("--model", o->model, "the base: Hugging Face folder or .gguf file")->required();
  app.add_option("--adapter", o->adapter, "PEFT adapter folder to merge into it");
  app.add_option("--out", o->out, ".gguf file to write; must not exist")->required();
  app.add_option("--type", o->type,
                 "of the matrices; left out: as the base has them. q4_k is the mix Q4_K_M")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k"}));
  app.add_flag("--adapter-only", o->adapter_only,
               "write the adapter alone, for llama.cpp's --lora; of the model only the config is "
               "read");
  return [o] { return run(*o); };
}

}  // namespace wgrad::cli
