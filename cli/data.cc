#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "data/model_text.h"
#include "data_summary.h"
#include "encode_options.h"
#include "marked_text.h"
#include "ranges.h"
#include "terminal.h"
#include "train_options.h"

namespace wgrad::cli {
namespace {

struct Options {
  std::string model, data;
  data::EncodeOptions encode;
  std::string colour = "auto";
  bool stats = false;
  bool json = false;
};

const std::map<std::string, ColourMode> kColourModes = {
    {"auto", ColourMode::kAuto}, {"always", ColourMode::kAlways}, {"never", ColourMode::kNever}};

void print_warnings(const data::Summary& summary) {
  for (const std::string& text : summary.warnings()) fmt::print(stderr, "warning: {}\n", text);
}

void print_json_rows(const Options& options, const data::Files& files) {
  const text::TextAssets assets = data::load_model_text(options.model);
  print_warnings(data::for_each_row(files, assets, options.encode, [](data::Row&& row) {
    nlohmann::ordered_json json;
    json["ids"] = row.ids;
    nlohmann::ordered_json labels = nlohmann::ordered_json::array();
    for (size_t i = 0; i < row.ids.size(); ++i) {
      labels.push_back(row.counted[i] ? static_cast<int64_t>(row.ids[i]) : int64_t{-100});
    }
    json["labels"] = std::move(labels);
    fmt::print("{}\n", json.dump());
  }));
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
  if (options.stats) {
    print_stats(options, files);
  } else if (options.json) {
    print_json_rows(options, files);
  } else {
    show_rows(options.model, files, options.encode,
              Colours(kColourModes.at(options.colour), stdout_is_terminal()));
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
