#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/lora_config.h"
#include "wgrad/train.h"

namespace wgrad::train {

/// The words of an option that takes one of a few.
template <typename E>
struct EnumNames;
template <typename E>
using EnumPairs = std::vector<std::pair<std::string_view, E>>;

template <>
struct EnumNames<Method> {
  static const EnumPairs<Method> pairs;
};
template <>
struct EnumNames<Schedule> {
  static const EnumPairs<Schedule> pairs;
};
template <>
struct EnumNames<PromptStyle> {
  static const EnumPairs<PromptStyle> pairs;
};
template <>
struct EnumNames<TrainOn> {
  static const EnumPairs<TrainOn> pairs;
};
template <>
struct EnumNames<Precision> {
  static const EnumPairs<Precision> pairs;
};
template <>
struct EnumNames<Recompute> {
  static const EnumPairs<Recompute> pairs;
};

template <typename E>
std::string_view enum_name(E value) {
  for (const auto& [name, v] : EnumNames<E>::pairs) {
    if (v == value) return name;
  }
  return "?";
}

/// Whether an option changes the numbers of a run: a resumed run must have the same.
enum class Affects { kNumbers, kOutputs };

/// Every option once, for the command line, run.yaml and checkpoints:
/// visit(name, member, help, affects).
template <typename Options, typename Visitor>
void visit_options(Options& o, Visitor&& visit) {
  using enum Affects;
  visit("model", o.model, "Hugging Face folder or .gguf file", kNumbers);
  visit("data", o.data,
        ".jsonl or .json files (commas between), -, or a folder (train.jsonl, valid.jsonl)",
        kNumbers);
  visit("out", o.out, "folder of the run", kOutputs);
  visit("method", o.method, "what is trained", kNumbers);
  visit("rank", o.rank, "LoRA rank", kNumbers);
  visit("alpha", o.alpha, "LoRA alpha", kNumbers);
  visit("dropout", o.dropout, "dropout on the adapters' inputs", kNumbers);
  visit("targets", o.targets, "adapted modules: all-linear, or names", kNumbers);
  visit("rslora", o.rslora, "scale by alpha / sqrt(rank)", kNumbers);
  visit("dora", o.dora, "learn the length of each weight row beside its direction", kNumbers);
  visit("target-regex", o.target_regex, "in place of --targets: matched with whole module names",
        kNumbers);
  visit("exclude-modules", o.exclude, "modules to leave alone, named as in --targets", kNumbers);
  visit("layers-to-transform", o.layers, "numbers of the only blocks that are adapted", kNumbers);
  visit("rank-pattern", o.rank_pattern, "ranks of their own for some modules: NAME=RANK,...",
        kNumbers);
  visit("alpha-pattern", o.alpha_pattern, "alphas of their own for some modules: NAME=ALPHA,...",
        kNumbers);
  visit("modules-to-save", o.modules_to_save,
        "modules that are trained whole, as embed_tokens, lm_head or norm", kNumbers);
  visit("init-adapter", o.init_adapter, "PEFT folder to continue from", kNumbers);
  visit("batch-size", o.batch_size, "rows a micro-batch", kNumbers);
  visit("grad-accum", o.grad_accum, "micro-batches a step", kNumbers);
  visit("max-seq-len", o.max_seq_len, "tokens that a row is cut to", kNumbers);
  visit("epochs", o.epochs, "times through the data", kNumbers);
  visit("steps", o.steps, "steps, in place of --epochs", kNumbers);
  visit("lr", o.lr, "learning rate [2e-4; 2e-5 for full]", kNumbers);
  visit("schedule", o.schedule, "learning rate after the warmup", kNumbers);
  visit("warmup-steps", o.warmup_steps, "steps of warmup, in place of --warmup-ratio", kNumbers);
  visit("warmup-ratio", o.warmup_ratio, "share of the steps that warm up", kNumbers);
  visit("weight-decay", o.weight_decay, "of matrices, never of norms and biases", kNumbers);
  visit("beta1", o.beta1, "AdamW's decay of the first moment", kNumbers);
  visit("beta2", o.beta2, "AdamW's decay of the second moment", kNumbers);
  visit("eps", o.eps, "AdamW's epsilon", kNumbers);
  visit("max-grad-norm", o.max_grad_norm, "gradients are clipped to this norm; 0: never", kNumbers);
  visit("seed", o.seed, "of the order, the adapter's start and dropout", kNumbers);
  visit("shuffle", o.shuffle, "shuffle rows each epoch", kNumbers);
  visit("packing", o.packing, "fill micro-batches up to batch-size * max-seq-len tokens", kNumbers);
  visit("prompt-style", o.prompt_style, "how prompt/completion strings are read", kNumbers);
  visit("train-on", o.train_on, "which tokens count in the loss", kNumbers);
  visit("skip-bad-rows", o.skip_bad_rows, "leave out rows that cannot be read", kNumbers);
  visit("dtype", o.dtype, "operands of the large products", kNumbers);
  visit("recompute", o.recompute, "keep activations, or each block's input alone", kOutputs);
  visit("device", o.device, "auto, cpu, gpu, gpu:NAME or software", kOutputs);
  visit("eval-data", o.eval_data, "rows to evaluate on", kOutputs);
  visit("eval-every", o.eval_every, "steps between evaluations; 0: at the end", kOutputs);
  visit("save-every", o.save_every, "steps between checkpoints; 0: at the end", kOutputs);
  visit("keep", o.keep, "checkpoints kept", kOutputs);
  visit("resume", o.resume, "go on from the newest checkpoint", kOutputs);
  visit("log-every", o.log_every, "steps between lines of metrics.jsonl", kOutputs);
  visit("sample-prompt", o.sample_prompt, "a prompt to answer along the run", kOutputs);
  visit("sample-prompts", o.sample_prompts, "file of such prompts, one a line", kOutputs);
  visit("sample-every", o.sample_every,
        "steps between samples; 0: before the first and after the last alone", kOutputs);
  visit("sample-tokens", o.sample_tokens, "tokens of a sample, at most", kOutputs);
  visit("sample-raw", o.sample_raw, "continue the prompts as plain text, without the template",
        kOutputs);
  visit("report", o.report, "write report.html, anew with each checkpoint", kOutputs);
  visit("tensorboard", o.tensorboard, "write TensorBoard's event files too", kOutputs);
}

/// The options as the text of run.yaml; what --config reads back to the same options.
std::string to_yaml(const TrainOptions& options);

/// Names of options, each with its value as text.
using Settings = std::vector<std::pair<std::string, std::string>>;

std::vector<std::string_view> option_names();

/// Every option that is set.
Settings all_settings(const TrainOptions& options);

/// The options that change the numbers, whether set or not.
Settings numeric_settings(const TrainOptions& options);

/// The options of an adapter as its configuration, and back.
model::LoraConfig lora_config(const TrainOptions& options);
void set_lora_config(TrainOptions& options, const model::LoraConfig& lora);

/// Throws an input error for the first option out of range.
void validate(const TrainOptions& options);

}  // namespace wgrad::train
