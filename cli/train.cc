#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "data/dataset.h"
#include "marked_text.h"
#include "progress.h"
#include "signals.h"
#include "train_options.h"
#include "wgrad/train.h"

namespace wgrad::cli {
namespace {

struct Options {
  TrainOptions train;
  bool plan = false;
  bool dry_run = false;
  bool json = false;
};

nlohmann::ordered_json to_json(const TrainPlan& plan) {
  nlohmann::ordered_json json;
  json["device"] = plan.device;
  json["method"] = plan.method;
  json["dtype"] = plan.dtype;
  json["recompute"] = plan.recompute;
  json["rows"] = plan.rows;
  json["steps"] = plan.steps;
  json["tokens_per_epoch"] = plan.tokens_per_epoch;
  json["counted_tokens_per_epoch"] = plan.counted_tokens_per_epoch;
  json["longest_micro_batch"] = plan.longest_micro_batch;
  json["parameters"] = plan.parameters;
  json["trainable_parameters"] = plan.trainable_parameters;
  json["peak_memory_bytes"] = plan.peak_bytes;
  json["available_memory_bytes"] = plan.available_bytes;
  json["seconds"] = plan.seconds;
  json["memory_by_part"] = plan.bytes_by_label;
  return json;
}

int show_plan(const Options& options) {
  Progress progress;
  if (options.dry_run) {
    constexpr int64_t kRowsShown = 3;
    data::EncodeOptions encode;
    encode.max_seq_len = options.train.max_seq_len;
    encode.prompt_style = options.train.prompt_style;
    encode.train_on = options.train.train_on;
    encode.skip_bad_rows = options.train.skip_bad_rows;
    encode.limit = kRowsShown;
    show_rows(options.train.model, data::find_data_files(options.train.data).train, encode);
  }
  const TrainPlan plan = plan_training(options.train, progress);
  if (options.json) {
    fmt::print("{}\n", to_json(plan).dump());
  } else {
    fmt::print("{}", describe(plan));
  }
  return kDone;
}

int train(const Options& options) {
  if (options.plan || options.dry_run) return show_plan(options);
  Progress progress;
  const SignalStop signals;
  const TrainResult result = run_training(options.train, progress, signals.stop());
  const bool finished = result.end == TrainEnd::kFinished;
  if (options.json) {
    nlohmann::ordered_json json;
    json["out"] = options.train.out;
    json["finished"] = finished;
    json["steps"] = result.steps;
    json["loss"] = result.final_loss;
    json["seconds"] = progress.last().seconds;
    fmt::print("{}\n", json.dump());
  } else if (finished) {
    const StepMetrics& last = progress.last();
    fmt::print(stderr, "done: {} steps, {} tokens in {}; loss {:.4f}; written to {}\n",
               result.steps, last.total_tokens, format_seconds(last.seconds), result.final_loss,
               options.train.out);
  } else {
    fmt::print(stderr, "stopped after step {}; go on with the same command and --resume\n",
               result.steps);
  }
  return finished ? kDone : signals.exit_code();
}

}  // namespace

Run add_train(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_train_options(app, options->train);
  app.add_flag("--plan", options->plan, "print the memory and time plan, train nothing");
  app.add_flag("--dry-run", options->dry_run, "show the first rows and what counts, then the plan");
  app.add_flag("--json", options->json, "print the plan or the result as one JSON object");
  return [options] { return train(*options); };
}

}  // namespace wgrad::cli
