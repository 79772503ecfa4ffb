#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/counted.h"
#include "command.h"
#include "data/model_text.h"
#include "data_summary.h"
#include "encode_options.h"
#include "marked_text.h"
#include "model/config.h"
#include "ranges.h"
#include "terminal.h"
#include "train_options.h"
#include "wgrad/error.h"
#include "wgrad/train.h"

namespace wgrad::cli {
namespace {

struct Options {
  std::string model, data;
  data::EncodeOptions encode;
  const CLI::Option* cut = nullptr;  ///< --max-seq-len
  std::string colour = "auto";
  bool stats = false;
  bool json = false;
};

const std::map<std::string, ColourMode> kColourModes = {
    {"auto", ColourMode::kAuto}, {"always", ColourMode::kAlways}, {"never", ColourMode::kNever}};

void print_warnings(const data::Summary& summary) {
  for (const std::string& text : summary.warnings()) fmt::print(stderr, "warning: {}\n", text);
}

/// Positions of the model; 0 where there is a tokenizer without a configuration that is known.
int64_t model_limit(const std::string& model) {
  try {
    return model::read_config(model).max_positions;
  } catch (const Error&) {
    const std::filesystem::path path(model);
    std::error_code error;
    const bool has_text = std::filesystem::is_regular_file(path, error) ||
                          std::filesystem::exists(path / "tokenizer.json", error);
    if (!has_text) throw;
    return 0;
  }
}

/// What train cuts rows to where nothing else is given.
int64_t usual_cut(const std::string& model) {
  const int64_t limit = model_limit(model), usual = TrainOptions().max_seq_len;
  return limit > 0 ? std::min(limit, usual) : usual;
}

/// As train does, unless the option says otherwise.
void set_cut(Options& options) {
  const bool given = options.cut->count() > 0;
  if (!given) options.encode.max_seq_len = TrainOptions().max_seq_len;
  if (options.encode.max_seq_len > 0) options.encode.model_limit = model_limit(options.model);
}

/// Rows that are shown whole where train would cut them.
void warn_of_cut(const Options& options, const data::Summary& summary) {
  if (options.cut->count() > 0) return;
  const int64_t cut = usual_cut(options.model);
  const int64_t longer = summary.longer_than(cut);
  if (longer == 0) return;
  fmt::print(stderr, "warning: {} longer than {} tokens: train cuts there\n",
             counted(longer, "row"), cut);
}

/// Whole rows, unless they are to be cut.
void print_json_rows(const Options& options, const data::Files& files) {
  const text::TextAssets assets = data::load_model_text(options.model);
  const data::Summary summary =
      data::for_each_row(files, assets, options.encode, [](data::Row&& row) {
        nlohmann::ordered_json json;
        json["ids"] = row.ids;
        nlohmann::ordered_json labels = nlohmann::ordered_json::array();
        for (size_t i = 0; i < row.ids.size(); ++i) {
          labels.push_back(row.counted[i] ? static_cast<int64_t>(row.ids[i]) : int64_t{-100});
        }
        json["labels"] = std::move(labels);
        fmt::print("{}\n", json.dump());
      });
  print_warnings(summary);
  warn_of_cut(options, summary);
}

void print_stats(const Options& options, const data::Files& files) {
  const text::TextAssets assets = data::load_model_text(options.model);
  const data::Summary summary =
      data::for_each_row(files, assets, options.encode, [](data::Row&&) {});
  const DataSummary described = data::describe(summary, "data");
  if (options.json) {
    fmt::print("{}\n", to_json(described).dump());
  } else {
    fmt::print("{}", describe(described));
  }
  print_warnings(summary);
}

int run(Options& options) {
  options.encode.keep_uncounted = true;
  const data::Files files = data::find_data_files(options.data).train;
  if (options.stats) set_cut(options);
  if (options.stats) {
    print_stats(options, files);
  } else if (options.json) {
    print_json_rows(options, files);
  } else {
    warn_of_cut(options, show_rows(options.model, files, options.encode,
                                   Colours(kColourModes.at(options.colour), stdout_is_terminal())));
  }
  return kDone;
}

}  // namespace

Run add_data(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("--model", o->model, "Hugging Face folder or .gguf file")->required();
  add_data_option(app, "--data", o->data, ".jsonl or .json files (commas between), -, or a folder")
      ->required();
  app.add_option("--limit", o->encode.limit, "rows shown; 0: all")->check(AtLeast(0));
  add_encode_options(app, o->encode);
  o->cut = app.get_option("--max-seq-len")
               ->description(
                   "tokens a row is cut to; 0 or left out: no cut, but with --stats as train "
                   "does");
  app.add_option("--color", o->colour, "auto, always or never; auto heeds NO_COLOR")
      ->check(CLI::IsMember(kColourModes))
      ->capture_default_str()
      ->type_name("");
  app.add_flag("--stats", o->stats, "only count: rows, tokens, and how long the rows are");
  app.add_flag("--json", o->json,
               "a line a row {\"ids\", \"labels\"}; with --stats one JSON object");
  return [o] { return run(*o); };
}

}  // namespace wgrad::cli
