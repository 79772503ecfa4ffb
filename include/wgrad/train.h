#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wgrad/error.h"

namespace wgrad {

enum class Method { kLora, kQlora, kFull };
enum class Schedule { kCosine, kLinear, kConstant };
enum class PromptStyle { kRaw, kChat };
enum class TrainOn { kAssistant, kAll };
enum class Precision { kAuto, kF32, kF16 };
enum class Recompute { kAuto, kNone, kBlock };

/// Every setting of a training run. Names and meanings are those of `wgrad train --help`.
struct TrainOptions {
  std::string model;  ///< a Hugging Face folder or a .gguf file
  /// .jsonl or .json (each also packed: .gz), "-", a folder with train.jsonl (and valid.jsonl) or
  /// other .jsonl files, or several of these with commas between them.
  std::string data;
  std::string out;  ///< the run's folder

  Method method = Method::kLora;
  int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  std::vector<std::string> targets = {"all-linear"};
  bool rslora = false;
  bool dora = false;
  std::string target_regex;          ///< in place of targets: for whole module names
  std::vector<std::string> exclude;  ///< modules to leave alone
  std::vector<std::string> layers;   ///< numbers of the only blocks that are adapted
  std::vector<std::string> rank_pattern, alpha_pattern;  ///< NAME=VALUE
  std::vector<std::string> modules_to_save;              ///< modules trained whole
  std::string init_adapter;

  int64_t batch_size = 4;      ///< rows a micro-batch
  int64_t grad_accum = 1;      ///< micro-batches a step
  int64_t max_seq_len = 2048;  ///< tokens a row is cut to
  double epochs = 1;
  int64_t steps = 0;  ///< where positive, in place of epochs

  std::optional<double> lr;  ///< default 2e-4, for full fine-tuning 2e-5
  Schedule schedule = Schedule::kCosine;
  std::optional<int64_t> warmup_steps;
  double warmup_ratio = 0.03;
  double weight_decay = 0.01;  ///< of matrices only
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double max_grad_norm = 1.0;  ///< 0: no clipping

  uint64_t seed = 0;
  bool shuffle = true;
  bool packing = false;
  PromptStyle prompt_style = PromptStyle::kRaw;
  TrainOn train_on = TrainOn::kAssistant;
  bool skip_bad_rows = false;

  Precision dtype = Precision::kAuto;
  Recompute recompute = Recompute::kAuto;
  std::string device = "auto";

  std::string eval_data;
  int64_t eval_every = 0;  ///< steps; 0: at the end only
  int64_t save_every = 0;  ///< steps; 0: at the end only
  int64_t keep = 3;        ///< checkpoints kept
  bool resume = false;
  int64_t log_every = 1;

  std::string sample_prompt;   ///< answered along the run, to see the model change
  std::string sample_prompts;  ///< a file of such prompts, one a line
  int64_t sample_every = 0;    ///< steps; 0: before the first and after the last alone
  int64_t sample_tokens = 64;  ///< of an answer, at most
  bool sample_raw = false;     ///< prompts as plain text, without the chat template
  bool report = false;
  bool tensorboard = false;
};

/// One logged step, as metrics.jsonl has it.
struct StepMetrics {
  int64_t step = 0, total_steps = 0;
  double epoch = 0;
  double loss = 0;  ///< mean negative log-likelihood over the step's counted tokens
  double lr = 0;
  double grad_norm = 0;  ///< before clipping
  int64_t tokens = 0;    ///< processed by this step
  int64_t total_tokens = 0;
  double tokens_per_second = 0;  ///< of the steps, without evaluations and checkpoints
  double seconds = 0;            ///< since the start
  int64_t peak_memory_bytes = 0;
};

struct EvalMetrics {
  int64_t step = 0;
  double loss = 0;
  int64_t tokens = 0;  ///< counted
};

/// What the model of a step writes after one of the prompts, the likeliest token each time.
struct Sample {
  int64_t step = 0;
  std::string prompt, text;
};

/// The rows that a run read, before it begins.
struct DataSummary {
  std::string name;                                        ///< of what: "train" or "valid"
  int64_t rows = 0, tokens = 0, counted_tokens = 0;        ///< as used, after the cut
  int64_t median_length = 0, p90_length = 0, longest = 0;  ///< in tokens, before the cut
  int64_t cut = 0, cut_to = 0;                             ///< rows cut, and to how many tokens
  int64_t skipped = 0;                                     ///< rows in which nothing counts
  int64_t bad = 0;                                         ///< rows that --skip-bad-rows left out
  struct Bin {
    int64_t from = 0, to = 0, rows = 0;
  };
  std::vector<Bin> lengths;  ///< how many rows have from `from` to `to` tokens, before the cut
};

/// What a run will use, found before anything is allocated.
struct TrainPlan {
  std::string device;
  std::string method, dtype, recompute;
  int64_t rows = 0, steps = 0, tokens_per_epoch = 0, counted_tokens_per_epoch = 0;
  int64_t longest_micro_batch = 0;  ///< tokens
  int64_t parameters = 0, trainable_parameters = 0;
  int64_t peak_bytes = 0;
  int64_t available_bytes = 0;  ///< 0: unknown
  double flops_per_step = 0;
  double seconds = 0;  ///< estimate; 0: unknown
  std::map<std::string, int64_t> bytes_by_label;
};

/// What a run reports; the library itself never prints. Called from the training thread.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_data(const DataSummary&) {}
  virtual void on_plan(const TrainPlan&) {}
  virtual void on_step(const StepMetrics&) {}
  virtual void on_eval(const EvalMetrics&) {}
  virtual void on_sample(const Sample&) {}
  virtual void on_checkpoint(const std::string& /*folder*/) {}
  virtual void on_warning(const std::string& /*text*/) {}
};

enum class TrainEnd { kFinished, kStopped };

struct TrainResult {
  TrainEnd end = TrainEnd::kFinished;
  int64_t steps = 0;
  int64_t tokens = 0;
  double seconds = 0;  ///< of the whole run, the parts before a --resume included
  double final_loss = std::numeric_limits<double>::quiet_NaN();  ///< of the last step; NaN: none
};

/// Trains and writes the run's folder. `stop`: set by a signal handler or another thread, it makes
/// the run finish its step, save a checkpoint and return kStopped.
/// Throws wgrad::Error; the newest checkpoint is intact whatever happens.
TrainResult run_training(const TrainOptions& options, TrainObserver& observer,
                         const std::atomic<bool>* stop = nullptr);

/// The plan of a run without training: reads the data and the model's headers only.
TrainPlan plan_training(const TrainOptions& options, TrainObserver& observer);

}  // namespace wgrad
