#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/counted.h"
#include "command.h"
#include "encode_options.h"
#include "inference_options.h"
#include "train/evaluate.h"
#include "train_options.h"

namespace wgrad::cli {
namespace {

struct Options {
  train::InferenceOptions inference;
  std::string data;
  data::EncodeOptions encode;
  bool per_row = false;
  bool json = false;
};

int run(Options& options) {
  options.encode.keep_uncounted = options.per_row;
  train::LoadedModel loaded = load_model(options.inference);
  const data::Files files = data::find_eval_files(options.data);
  auto on_row = [&](const train::RowLoss& row) {
    if (!options.per_row) return;
    if (options.json) {
      nlohmann::ordered_json json;
      json["row"] = row.row - 1;  // from 0, as a script's lists
      json["loss"] = row.tokens > 0 ? nlohmann::ordered_json(row.loss) : nullptr;
      json["tokens"] = row.tokens;
      fmt::print("{}\n", json.dump());
    } else {
      const std::string loss = row.tokens > 0 ? fmt::format("{:.4f}", row.loss) : "-";
      fmt::print("row {:>6}  loss {}  tokens {}\n", row.row, loss, row.tokens);
    }
  };
  const train::EvalResult result = train::evaluate_files(loaded, files, options.encode, on_row);
  for (const std::string& text : result.summary.warnings()) {
    fmt::print(stderr, "warning: {}\n", text);
  }
  if (options.json) {
    nlohmann::ordered_json json;
    json["loss"] = result.loss;
    json["perplexity"] = result.perplexity;
    json["tokens"] = result.tokens;
    json["rows"] = result.rows;
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("loss {:.6f}  perplexity {:.4f}  over {} in {} of {}\n", result.loss,
               result.perplexity, counted(result.tokens, "token"), counted(result.rows, "row"),
               data::name_of(files));
  }
  return kDone;
}

}  // namespace

Run add_eval(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_inference_options(app, o->inference, Adapters::kOne);
  add_data_option(app, "--data", o->data,
                  ".jsonl or .json files (commas between), -, or a folder (its valid.jsonl)")
      ->required();
  add_encode_options(app, o->encode);
  app.add_flag("--per-row", o->per_row, "a line a row first");
  app.add_flag("--json", o->json, "one JSON object (and one a row with --per-row)");
  return [o] { return run(*o); };
}

}  // namespace wgrad::cli
