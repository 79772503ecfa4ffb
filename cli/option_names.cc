#include "option_names.h"

#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>
#include <vector>

#include "wgrad/error.h"

namespace wgrad::cli {
namespace {

struct Translation {
  std::string_view theirs;  ///< in lower case, with - for _
  std::string_view ours;
  std::string_view value = {};  ///< that says the same, where their option is a switch
};

/// Names of transformers, TRL, peft, Unsloth, Axolotl, LLaMA-Factory, mlx_lm and llama.cpp. Those
/// that differ by dashes alone need no line.
constexpr Translation kTranslations[] = {
    // the model, the rows and what is written
    {"model-name-or-path", "model"},
    {"model-name", "model"},
    {"model-id", "model"},
    {"model-path", "model"},
    {"base-model", "model"},
    {"train-file", "data"},
    {"train-dataset", "data"},
    {"dataset", "data"},
    {"datasets", "data"},
    {"dataset-name", "data"},
    {"dataset-path", "data"},
    {"data-path", "data"},
    {"validation-file", "eval-data"},
    {"eval-file", "eval-data"},
    {"eval-dataset", "eval-data"},
    {"output-dir", "out"},
    {"output", "out"},
    {"adapter-path", "adapter"},
    {"adapter-path", "out"},
    {"adapter-name-or-path", "init-adapter"},
    {"lora-model-dir", "init-adapter"},
    {"resume-adapter-file", "init-adapter"},
    {"lora", "adapter"},
    {"resume-from-checkpoint", "resume"},
    // the adapter
    {"fine-tune-type", "method"},
    {"finetuning-type", "method"},
    {"train-type", "method"},
    {"load-in-4bit", "method", "qlora"},
    {"quantization-bit", "method", "qlora"},
    {"use-peft", "method", "lora"},
    {"full-finetuning", "method", "full"},
    {"r", "rank"},
    {"lora-r", "rank"},
    {"lora-rank", "rank"},
    {"lora-alpha", "alpha"},
    {"lora-dropout", "dropout"},
    {"target-modules", "targets"},
    {"lora-target", "targets"},
    {"lora-target-modules", "targets"},
    {"lora-target-linear", "targets", "all-linear"},
    {"lora-modules-to-save", "modules-to-save"},
    {"additional-target", "modules-to-save"},
    {"lora-modules-to-exclude", "exclude-modules"},
    {"use-rslora", "rslora"},
    {"use-dora", "dora"},
    {"peft-use-rslora", "rslora"},
    {"peft-use-dora", "dora"},
    // lengths and batches
    {"max-seq-length", "max-seq-len"},
    {"max-length", "max-seq-len"},
    {"cutoff-len", "max-seq-len"},
    {"sequence-len", "max-seq-len"},
    {"model-max-length", "max-seq-len"},
    {"block-size", "max-seq-len"},
    {"per-device-train-batch-size", "batch-size"},
    {"train-batch-size", "batch-size"},
    {"micro-batch-size", "batch-size"},
    {"gradient-accumulation-steps", "grad-accum"},
    {"grad-accumulation-steps", "grad-accum"},
    {"grad-accum-steps", "grad-accum"},
    {"sample-packing", "packing"},
    {"neat-packing", "packing"},
    {"gradient-checkpointing", "recompute", "block"},
    {"grad-checkpoint", "recompute", "block"},
    {"use-gradient-checkpointing", "recompute", "block"},
    // the optimizer and its schedule
    {"learning-rate", "lr"},
    {"num-train-epochs", "epochs"},
    {"num-epochs", "epochs"},
    {"n-epochs", "epochs"},
    {"max-steps", "steps"},
    {"iters", "steps"},
    {"num-steps", "steps"},
    {"lr-scheduler", "schedule"},
    {"lr-scheduler-type", "schedule"},
    {"lr-schedule", "schedule"},
    {"num-warmup-steps", "warmup-steps"},
    {"warmup", "warmup-steps"},
    {"warmup-proportion", "warmup-ratio"},
    {"wd", "weight-decay"},
    {"adam-beta1", "beta1"},
    {"adam-beta2", "beta2"},
    {"adam-epsilon", "eps"},
    {"epsilon", "eps"},
    {"grad-clip", "max-grad-norm"},
    {"gradient-clipping", "max-grad-norm"},
    {"max-norm", "max-grad-norm"},
    {"random-state", "seed"},
    {"random-seed", "seed"},
    {"data-seed", "seed"},
    {"bf16", "dtype"},
    {"fp16", "dtype", "f16"},
    {"torch-dtype", "dtype"},
    {"mixed-precision", "dtype"},
    {"precision", "dtype"},
    // what counts in the loss
    {"train-on-inputs", "train-on", "all"},
    {"train-on-prompt", "train-on", "all"},
    {"train-on-responses-only", "train-on", "assistant"},
    {"assistant-only-loss", "train-on", "assistant"},
    {"completion-only-loss", "train-on", "assistant"},
    {"mask-prompt", "train-on", "assistant"},
    // along the run
    {"logging-steps", "log-every"},
    {"steps-per-report", "log-every"},
    {"eval-steps", "eval-every"},
    {"steps-per-eval", "eval-every"},
    {"save-steps", "save-every"},
    {"save-total-limit", "keep"},
    {"report-to", "tensorboard"},
    // answers
    {"max-new-tokens", "max-tokens"},
    {"n-predict", "max-tokens"},
    {"temp", "temperature"},
    {"repeat-penalty", "repetition-penalty"},
    {"system-prompt", "system"},
    {"stop-sequence", "stop"},
    {"stop-strings", "stop"},
    {"outtype", "type"},
    {"outfile", "out"},
    {"device-map", "device"},
};

/// Levenshtein's distance.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, change});
    }
  }
  return row.back();
}

std::string nearest_option(const CLI::App& command, std::string_view name) {
  std::string nearest;
  size_t best = std::numeric_limits<size_t>::max();
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& known : option->get_lnames()) {
      const size_t d = distance(name, known);
      if (d < best) {
        best = d;
        nearest = known;
      }
    }
  }
  return nearest;
}

bool has_option(const CLI::App& command, std::string_view name) {
  return command.get_option_no_throw(fmt::format("--{}", name)) != nullptr;
}

std::string normal_form(std::string_view name) {
  constexpr size_t kMost = 64;
  std::string normal(name.substr(0, kMost));
  for (char& c : normal) {
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return normal;
}

}  // namespace

std::string suggest_option(const CLI::App& command, std::string_view name) {
  const std::string normal = normal_form(name);
  for (const Translation& t : kTranslations) {
    if (t.theirs != normal || !has_option(command, t.ours)) continue;
    return t.value.empty() ? fmt::format("here it is called \"{}\"", t.ours)
                           : fmt::format("here it is \"{}\" with the value {}", t.ours, t.value);
  }
  return fmt::format("the nearest known one is \"{}\"", nearest_option(command, normal));
}

void refuse_unknown_option(const CLI::App& program) {
  for (const CLI::App* command : program.get_subcommands()) {
    const std::string name = fmt::format("{} {}", program.get_name(), command->get_name());
    for (const std::string& word : command->remaining()) {
      const size_t dashes = std::min<size_t>(word.find_first_not_of('-'), 2);
      if (dashes == 0 || dashes >= word.size()) continue;
      const std::string key = word.substr(dashes, word.find('=') - dashes);
      throw input_error(name, fmt::format("unknown option \"{}\"", word.substr(0, word.find('='))),
                        suggest_option(*command, key), fmt::format("see `{} --help`", name));
    }
  }
}

}  // namespace wgrad::cli
