#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/counted.h"
#include "command.h"
#include "data/dataset.h"
#include "data/model_text.h"
#include "marked_text.h"
#include "model/config.h"
#include "progress.h"
#include "signals.h"
#include "train/plan.h"
#include "train_options.h"
#include "wgrad/train.h"

namespace wgrad::cli {
namespace {

struct Options {
  TrainOptions train;
  uint64_t device_memory = 0;  ///< 0: of the device itself
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

data::EncodeOptions first_rows(const TrainOptions& options) {
  constexpr int64_t kRowsShown = 3;
  data::EncodeOptions encode;
  encode.max_seq_len = options.max_seq_len;
  encode.model_limit = model::read_config(options.model).max_positions;
  encode.prompt_style = options.prompt_style;
  encode.train_on = options.train_on;
  encode.skip_bad_rows = options.skip_bad_rows;
  encode.limit = kRowsShown;
  return encode;
}

nlohmann::ordered_json rows_to_json(const TrainOptions& options) {
  const text::TextAssets assets = data::load_model_text(options.model);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  data::for_each_row(
      data::find_data_files(options.data).train, assets, first_rows(options), [&](data::Row&& row) {
        rows.push_back({{"row", row.number},
                        {"tokens", row.tokens()},
                        {"counted", row.counted_tokens()},
                        {"text", marked_text(row, assets.tokenizer, Colours(false))}});
      });
  return rows;
}

void check_device_memory(const Options& options) {
  constexpr uint64_t kLeast = uint64_t{16} << 20, kMost = uint64_t{1} << 50;
  const uint64_t memory = options.device_memory;
  if (options.train.device != "auto") {
    throw input_error("--device-memory",
                      fmt::format("given with --device {}", options.train.device),
                      "it plans for a GPU that need not be here", "leave --device out");
  }
  if (memory >= kLeast && memory <= kMost) return;
  throw input_error(
      "--device-memory", counted(static_cast<int64_t>(memory), "byte"),
      "the memory of a GPU, with its unit",
      memory < 1024 ? fmt::format("did you mean {}GB?", memory) : std::string("give it as 8GB"));
}

TrainPlan make_plan(const Options& options, TrainObserver& observer) {
  if (options.device_memory == 0) return plan_training(options.train, observer);
  check_device_memory(options);
  return train::plan_for_gpu(options.train, observer, static_cast<int64_t>(options.device_memory));
}

int show_plan(const Options& options) {
  Progress progress;
  const TrainOptions& train = options.train;
  if (options.dry_run && train.data == "-") {
    throw input_error("--dry-run", "the data comes from standard input", "it can be read only once",
                      "give a file, or use --plan");
  }
  if (options.json) {
    nlohmann::ordered_json json = to_json(make_plan(options, progress));
    if (options.dry_run) json["first_rows"] = rows_to_json(train);
    fmt::print("{}\n", json.dump());
    return kDone;
  }
  if (options.dry_run) {
    show_rows(train.model, data::find_data_files(train.data).train, first_rows(train),
              Colours(stdout_is_terminal()));
  }
  fmt::print("{}", describe(make_plan(options, progress)));
  return kDone;
}

int train(const Options& options) {
  if (options.plan || options.dry_run) return show_plan(options);
  if (options.device_memory > 0) {
    throw input_error("--device-memory", "given without --plan", "it changes a plan, not a run",
                      "add --plan");
  }
  Progress progress;
  std::signal(SIGPIPE, SIG_IGN);  // what reads the progress may end before the run does
  const SignalStop signals(
      "stopping after this step, with a checkpoint; once more ends at once, without one");
  const TrainResult result = run_training(options.train, progress, signals.stop());
  const bool finished = result.end == TrainEnd::kFinished;
  if (options.json) {
    nlohmann::ordered_json json;
    json["out"] = options.train.out;
    json["finished"] = finished;
    json["steps"] = result.steps;
    json["loss"] = result.final_loss;  // JSON's null where it is not finite
    json["seconds"] = result.seconds;
    fmt::print("{}\n", json.dump());
  } else if (finished) {
    say(fmt::format("done: {}, {} in {}; loss {}; written to {}\n", counted(result.steps, "step"),
                    counted(result.tokens, "token"), format_seconds(result.seconds),
                    format_value(result.final_loss, 4), options.train.out));
  } else {
    say(fmt::format("stopped after step {}; go on with the same command and --resume\n",
                    result.steps));
  }
  return finished ? kDone : signals.exit_code();
}

}  // namespace

Run add_train(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_train_options(app, options->train);
  app.add_flag("--plan", options->plan, "print the memory and time plan, train nothing");
  app.add_option("--device-memory", options->device_memory,
                 "with --plan: for a GPU of this memory, as 8GB, which need not be here")
      ->transform(CLI::AsSizeValue(true).description(""))
      ->type_name("SIZE");
  app.add_flag("--dry-run", options->dry_run, "show the first rows and what counts, then the plan");
  app.add_flag("--json", options->json, "print the plan or the result as one JSON object");
  return [options] { return train(*options); };
}

}  // namespace wgrad::cli
