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

/// What is trained: an adapter (Hu et al. 2021), an adapter beside weights of 4 bits (Dettmers et
/// al. 2023), or every weight.
enum class Method { kLora, kQlora, kFull };
/// How the learning rate goes on after the warm-up: to 0 as half a cosine, to 0 in a line, as it
/// is.
enum class Schedule { kCosine, kLinear, kConstant };
/// Whether prompt and completion are put end to end or into the model's chat template.
enum class PromptStyle { kRaw, kChat };
/// Whose tokens of a chat count in the loss.
enum class TrainOn { kAssistant, kAll };
/// The operands of matrix products; sums are f32 always. kAuto: f16 where the device has them.
enum class Precision { kAuto, kF32, kF16 };
/// Whether activations are kept or computed anew block by block; kAuto: what fits.
enum class Recompute { kAuto, kNone, kBlock };

/// Every setting of a training run. Names and meanings are those of `wgrad train --help`.
struct TrainOptions {
  std::string model;  ///< a Hugging Face folder or a .gguf file
  /// .jsonl or .json (each also packed: .gz), "-", a folder with train.jsonl (and valid.jsonl) or
  /// other .jsonl files, or several of these with commas between them.
  std::string data;
  std::string out;  ///< the run's folder

  Method method = Method::kLora;  ///< what is trained
  int64_t rank = 16;              ///< of the adapter's factors
  double alpha = 32;              ///< the adapter is scaled by alpha / rank
  double dropout = 0;             ///< probability, of the adapter's input
  /// Names of linear layers ("q_proj"), or all of them but lm_head.
  std::vector<std::string> targets = {"all-linear"};
  bool rslora = false;               ///< scale by alpha / sqrt(rank) instead (Kalajdzievski 2023)
  bool dora = false;                 ///< also train each output's magnitude (Liu et al. 2024)
  std::string target_regex;          ///< in place of targets: for whole module names
  std::vector<std::string> exclude;  ///< modules to leave alone
  std::vector<std::string> layers;   ///< numbers of the only blocks that are adapted
  std::vector<std::string> rank_pattern;     ///< NAME=VALUE: another rank for some modules
  std::vector<std::string> alpha_pattern;    ///< NAME=VALUE: another alpha for some modules
  std::vector<std::string> modules_to_save;  ///< modules trained whole
  std::string init_adapter;                  ///< the folder of an adapter to begin from

  int64_t batch_size = 4;      ///< rows a micro-batch
  int64_t grad_accum = 1;      ///< micro-batches a step
  int64_t max_seq_len = 2048;  ///< tokens a row is cut to
  double epochs = 1;           ///< passes over the rows
  int64_t steps = 0;           ///< where positive, in place of epochs

  std::optional<double> lr;               ///< default 2e-4, for full fine-tuning 2e-5
  Schedule schedule = Schedule::kCosine;  ///< of the learning rate
  std::optional<int64_t> warmup_steps;    ///< in which the rate rises from 0; before warmup_ratio
  double warmup_ratio = 0.03;             ///< the same as a share of all steps
  double weight_decay = 0.01;             ///< of matrices only
  double beta1 = 0.9;                     ///< of AdamW (Loshchilov and Hutter 2019): first moment
  double beta2 = 0.999;                   ///< second moment
  double eps = 1e-8;                      ///< added to the second moment's root
  double max_grad_norm = 1.0;             ///< 0: no clipping

  uint64_t seed = 0;     ///< of the adapter's start, the rows' order and dropout
  bool shuffle = true;   ///< a new order of the rows each epoch
  bool packing = false;  ///< micro-batches of rows that fill max_seq_len together
  PromptStyle prompt_style = PromptStyle::kRaw;  ///< of rows with prompt and completion
  TrainOn train_on = TrainOn::kAssistant;        ///< what counts in chats
  bool skip_bad_rows = false;                    ///< leave them out in place of throwing

  Precision dtype = Precision::kAuto;      ///< of matrix products
  Recompute recompute = Recompute::kAuto;  ///< saves memory, costs time
  /// "auto" (a GPU, else the CPU), "cpu", "gpu", "gpu:NAME" (part of its name) or "software".
  std::string device = "auto";

  std::string eval_data;   ///< as data; empty: valid.jsonl where data is a folder that has it
  int64_t eval_every = 0;  ///< steps; 0: at the end only
  int64_t save_every = 0;  ///< steps; 0: at the end only
  int64_t keep = 3;        ///< checkpoints kept
  bool resume = false;     ///< go on from the newest checkpoint in `out`, bit for bit
  int64_t log_every = 1;   ///< steps

  std::string sample_prompt;   ///< answered along the run, to see the model change
  std::string sample_prompts;  ///< a file of such prompts, one a line
  int64_t sample_every = 0;    ///< steps; 0: before the first and after the last alone
  int64_t sample_tokens = 64;  ///< of an answer, at most
  bool sample_raw = false;     ///< prompts as plain text, without the chat template
  bool report = false;         ///< write report.html
  bool tensorboard = false;    ///< write TensorBoard's event files
};

/// One logged step, as metrics.jsonl has it.
struct StepMetrics {
  int64_t step = 0;               ///< from 1
  int64_t total_steps = 0;        ///< of the run
  double epoch = 0;               ///< passes over the rows so far, with fractions
  double loss = 0;                ///< mean negative log-likelihood over the step's counted tokens
  double lr = 0;                  ///< learning rate of the step
  double grad_norm = 0;           ///< L2, before clipping
  int64_t tokens = 0;             ///< processed by this step
  int64_t total_tokens = 0;       ///< processed so far
  double tokens_per_second = 0;   ///< of the steps, without evaluations and checkpoints
  double seconds = 0;             ///< since the start
  int64_t peak_memory_bytes = 0;  ///< of the device so far
};

/// One evaluation.
struct EvalMetrics {
  int64_t step = 0;    ///< after which it was made
  double loss = 0;     ///< mean negative log-likelihood over the counted tokens
  int64_t tokens = 0;  ///< counted
};

/// What the model of a step writes after one of the prompts, the likeliest token each time.
struct Sample {
  int64_t step = 0;    ///< 0: before the first
  std::string prompt;  ///< as given
  std::string text;    ///< the answer
};

/// The rows that a run read, before it begins.
struct DataSummary {
  std::string name;            ///< of what: "train" or "valid"
  int64_t rows = 0;            ///< as used, after the cut
  int64_t tokens = 0;          ///< of these rows
  int64_t counted_tokens = 0;  ///< those that count in the loss
  int64_t median_length = 0;   ///< tokens of a row, before the cut
  int64_t p90_length = 0;      ///< nine of ten rows are no longer
  int64_t longest = 0;         ///< the longest row
  int64_t cut = 0;             ///< rows cut
  int64_t cut_to = 0;          ///< tokens they were cut to
  int64_t skipped = 0;         ///< rows in which nothing counts
  int64_t bad = 0;             ///< rows that --skip-bad-rows left out
  /// How many rows have a length within a range.
  struct Bin {
    int64_t from = 0;  ///< tokens, included
    int64_t to = 0;    ///< tokens, included
    int64_t rows = 0;  ///< of such a length
  };
  std::vector<Bin> lengths;  ///< of all rows, before the cut
};

/// What a run will use, found before anything is allocated.
struct TrainPlan {
  std::string device;                             ///< name, with the interface to it
  std::string method;                             ///< as the command line has it
  std::string dtype;                              ///< of matrix products: "f32" or "f16"
  std::string recompute;                          ///< "none" or "block"
  int64_t rows = 0;                               ///< to train on
  int64_t steps = 0;                              ///< of the whole run
  int64_t tokens_per_epoch = 0;                   ///< of all rows
  int64_t counted_tokens_per_epoch = 0;           ///< those that count in the loss
  int64_t longest_micro_batch = 0;                ///< tokens
  int64_t parameters = 0;                         ///< of the model
  int64_t trainable_parameters = 0;               ///< of these and the adapter
  int64_t peak_bytes = 0;                         ///< memory of the device
  int64_t available_bytes = 0;                    ///< 0: unknown
  double flops_per_step = 0;                      ///< multiplications and additions
  double seconds = 0;                             ///< estimate; 0: unknown
  std::map<std::string, int64_t> bytes_by_label;  ///< what the peak is made of
};

/// What a run reports; the library itself never prints. Called from the training thread.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_data(const DataSummary&) {}  ///< rows are read: of "train", of "valid"
  virtual void on_plan(const TrainPlan&) {}    ///< before anything is allocated
  /// A run goes on after so many steps, from this folder's checkpoint.
  virtual void on_resume(int64_t /*step*/, const std::string& /*folder*/) {}
  virtual void on_step(const StepMetrics&) {}  ///< every log_every steps
  virtual void on_eval(const EvalMetrics&) {}  ///< after each evaluation
  virtual void on_sample(const Sample&) {}     ///< for each answer to a sample's prompt
  virtual void on_checkpoint(const std::string& /*folder*/) {}  ///< it is complete on the disk
  virtual void on_warning(const std::string& /*text*/) {}       ///< what the user should know
};

/// How a run ended: all steps were made, or it was told to stop.
enum class TrainEnd { kFinished, kStopped };

/// What became of a run; the figures include what it did before it was resumed.
struct TrainResult {
  TrainEnd end = TrainEnd::kFinished;                            ///< kStopped: `resume` goes on
  int64_t steps = 0;                                             ///< made
  int64_t tokens = 0;                                            ///< processed
  double seconds = 0;                                            ///< of the whole run
  double final_loss = std::numeric_limits<double>::quiet_NaN();  ///< of the last step; NaN: none
};

/// Trains and writes the run's folder.
/// @param options what to train on what, and how
/// @param observer told of everything, in the calling thread; what it throws ends the run and comes
///   out here
/// @param stop set by the observer, a signal handler or another thread, it makes the run finish its
///   step, save a checkpoint and return kStopped
/// @throws Error the newest checkpoint is intact whatever happens
TrainResult run_training(const TrainOptions& options, TrainObserver& observer,
                         const std::atomic<bool>* stop = nullptr);

/// The plan of a run without training: reads the data and the model's headers only.
/// @throws Error where the options, the model or the data are not usable
TrainPlan plan_training(const TrainOptions& options, TrainObserver& observer);

}  // namespace wgrad
