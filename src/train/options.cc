#include "train/options.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <limits>

#include "io/json.h"

namespace wgrad::train {

const EnumPairs<Method> EnumNames<Method>::pairs = {
    {"lora", Method::kLora}, {"qlora", Method::kQlora}, {"full", Method::kFull}};
const EnumPairs<Schedule> EnumNames<Schedule>::pairs = {{"cosine", Schedule::kCosine},
                                                        {"linear", Schedule::kLinear},
                                                        {"constant", Schedule::kConstant}};
const EnumPairs<PromptStyle> EnumNames<PromptStyle>::pairs = {{"raw", PromptStyle::kRaw},
                                                              {"chat", PromptStyle::kChat}};
const EnumPairs<TrainOn> EnumNames<TrainOn>::pairs = {{"assistant", TrainOn::kAssistant},
                                                      {"all", TrainOn::kAll}};
const EnumPairs<Precision> EnumNames<Precision>::pairs = {
    {"auto", Precision::kAuto}, {"f32", Precision::kF32}, {"f16", Precision::kF16}};
const EnumPairs<Recompute> EnumNames<Recompute>::pairs = {
    {"auto", Recompute::kAuto}, {"none", Recompute::kNone}, {"block", Recompute::kBlock}};

namespace {

/// An option's value as text; empty: not set, so not written.
struct ValueText {
  std::string operator()(const std::string& v) const { return v; }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(uint64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const { return fmt::format("{}", v); }
  std::string operator()(const std::vector<std::string>& v) const {
    return fmt::format("{}", fmt::join(v, ","));
  }
  template <typename T>
  std::string operator()(const std::optional<T>& v) const {
    return v ? (*this)(*v) : std::string();
  }
  template <typename E>
  requires std::is_enum_v<E> std::string operator()(E v) const { return std::string(enum_name(v)); }
};

void check(bool ok, std::string_view name, const std::string& seen, std::string_view expected,
           std::string_view action = "give another value") {
  if (!ok) throw input_error(fmt::format("--{}", name), seen, expected, action);
}

/// Counts are bounded so that products of two of them fit into 64 bits.
constexpr int64_t kMostCount = std::numeric_limits<int32_t>::max();

void check_count(std::string_view name, int64_t value, int64_t least) {
  check(value >= least && value <= kMostCount, name, fmt::format("{}", value),
        fmt::format("expected a whole number from {} to {}", least, kMostCount));
}

void check_positive(std::string_view name, int64_t value) { check_count(name, value, 1); }

void check_not_negative(std::string_view name, int64_t value) { check_count(name, value, 0); }

void check_range(std::string_view name, double value, double low, double high) {
  check(std::isfinite(value) && value >= low && value <= high, name, fmt::format("{}", value),
        fmt::format("expected a number from {} to {}", low, high));
}

/// Full fine-tuning has no adapter, so what shapes one must be as if it was not given.
void check_no_adapter_options(const TrainOptions& o) {
  const TrainOptions standard;
  const auto check_same = [](const char* name, const auto& value, const auto& unset) {
    check(value == unset, name, ValueText()(value), "full fine-tuning trains no adapter",
          "leave it out, or use --method lora");
  };
  check_same("rank", o.rank, standard.rank);
  check_same("alpha", o.alpha, standard.alpha);
  check_same("dropout", o.dropout, standard.dropout);
  check_same("targets", o.targets, standard.targets);
  check_same("rslora", o.rslora, standard.rslora);
  check_same("dora", o.dora, standard.dora);
  check_same("target-regex", o.target_regex, standard.target_regex);
  check_same("exclude-modules", o.exclude, standard.exclude);
  check_same("layers-to-transform", o.layers, standard.layers);
  check_same("rank-pattern", o.rank_pattern, standard.rank_pattern);
  check_same("alpha-pattern", o.alpha_pattern, standard.alpha_pattern);
  check_same("modules-to-save", o.modules_to_save, standard.modules_to_save);
}

/// Every text goes into run.yaml and JSON files.
void check_texts(const TrainOptions& options) {
  visit_options(options, [](const char* name, const auto& value, const char*, Affects) {
    const std::string text = ValueText()(value);
    check(io::find_invalid_utf8(text) == std::string::npos, name, "the text is not UTF-8",
          "expected UTF-8", "rename the file or folder");
  });
}

}  // namespace

std::string to_yaml(const TrainOptions& options) {
  YAML::Emitter yaml;
  yaml << YAML::BeginMap;
  visit_options(options, [&](const char* name, const auto& value, const char*, Affects) {
    std::string text = ValueText()(value);
    if (text.empty()) return;
    yaml << YAML::Key << name << YAML::Value;
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
      yaml << YAML::DoubleQuoted;
    }
    yaml << text;
  });
  yaml << YAML::EndMap;
  return std::string(yaml.c_str()) + "\n";
}

std::vector<std::string_view> option_names() {
  std::vector<std::string_view> names;
  const TrainOptions options;
  visit_options(options, [&](const char* name, const auto&, const char*, Affects) {
    names.emplace_back(name);
  });
  return names;
}

Settings all_settings(const TrainOptions& options) {
  Settings settings;
  visit_options(options, [&](const char* name, const auto& value, const char*, Affects) {
    if (std::string text = ValueText()(value); !text.empty()) {
      settings.emplace_back(name, std::move(text));
    }
  });
  return settings;
}

Settings numeric_settings(const TrainOptions& options) {
  Settings settings;
  visit_options(options, [&](const char* name, const auto& value, const char*, Affects affects) {
    if (affects == Affects::kNumbers) settings.emplace_back(name, ValueText()(value));
  });
  return settings;
}

void validate(const TrainOptions& o) {
  check_texts(o);
  check(!o.model.empty(), "model", "not given", "expected a Hugging Face folder or a .gguf file",
        "give --model");
  check(!o.data.empty(), "data", "not given", "expected a .jsonl file or a folder", "give --data");
  check(!o.out.empty(), "out", "not given", "expected the folder to write to", "give --out");
  if (o.method != Method::kFull) {
    check_positive("rank", o.rank);
    check_range("alpha", o.alpha, 1e-30, 1e30);
    check_range("dropout", o.dropout, 0.0, 0.999);
    check(!o.targets.empty(), "targets", "empty", "expected all-linear or names of modules");
    check(o.target_regex.empty() || o.targets == TrainOptions().targets, "target-regex",
          o.target_regex, "--targets is given too", "give one of them");
    check(o.target_regex.empty() || o.layers.empty(), "layers-to-transform",
          fmt::format("{}", fmt::join(o.layers, ",")), "peft takes it with a list of names alone",
          "name the blocks in --target-regex");
    lora_config(o);
  } else {
    check(o.init_adapter.empty(), "init-adapter", o.init_adapter,
          "full fine-tuning trains no adapter", "merge the adapter first: wgrad merge");
    check_no_adapter_options(o);
  }
  check_positive("batch-size", o.batch_size);
  check_positive("grad-accum", o.grad_accum);
  check(o.max_seq_len >= 2 && o.max_seq_len <= kMostCount, "max-seq-len",
        fmt::format("{}", o.max_seq_len),
        fmt::format("expected 2 (a token is predicted from those before it) to {}", kMostCount));
  check_not_negative("steps", o.steps);
  if (o.steps == 0) check_range("epochs", o.epochs, 1e-9, 1e9);
  if (o.lr) check_range("lr", *o.lr, 0.0, 1e6);
  if (o.warmup_steps) check_not_negative("warmup-steps", *o.warmup_steps);
  check_range("warmup-ratio", o.warmup_ratio, 0.0, 1.0);
  check_range("weight-decay", o.weight_decay, 0.0, 1e6);
  check_range("beta1", o.beta1, 0.0, 0.9999999);
  check_range("beta2", o.beta2, 0.0, 0.9999999);
  check_range("eps", o.eps, 1e-30, 1.0);
  check_range("max-grad-norm", o.max_grad_norm, 0.0, 1e30);
  check_not_negative("eval-every", o.eval_every);
  check_not_negative("save-every", o.save_every);
  check_positive("keep", o.keep);
  check_positive("log-every", o.log_every);
  check_not_negative("sample-every", o.sample_every);
  check_positive("sample-tokens", o.sample_tokens);
  const bool samples = !o.sample_prompt.empty() || !o.sample_prompts.empty();
  check(samples || o.sample_every == 0, "sample-every", fmt::format("{}", o.sample_every),
        "there is no prompt to answer", "give --sample-prompt or --sample-prompts");
}

}  // namespace wgrad::train
