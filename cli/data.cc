#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "data/model_text.h"
#include "encode_options.h"
#include "marked_text.h"
#include "ranges.h"

namespace wgrad::cli {
namespace {

struct Options {
  std::string model, data;
  data::EncodeOptions encode;
  bool json = false;
};

void print_json_rows(const Options& options, const std::string& path) {
  const text::TextAssets assets = data::load_model_text(options.model);
  const data::Summary summary =
      data::for_each_row(path, assets, options.encode, [](data::Row&& row) {
        nlohmann::ordered_json json;
        json["ids"] = row.ids;
        nlohmann::ordered_json labels = nlohmann::ordered_json::array();
        for (size_t i = 0; i < row.ids.size(); ++i) {
          labels.push_back(row.counted[i] ? static_cast<int64_t>(row.ids[i]) : int64_t{-100});
        }
        json["labels"] = std::move(labels);
        fmt::print("{}\n", json.dump());
      });
  for (const std::string& text : summary.warnings()) fmt::print(stderr, "warning: {}\n", text);
}

int run(Options& options) {
  options.encode.keep_uncounted = true;
  const std::string path = data::find_data_files(options.data).train;
  if (options.json) {
    print_json_rows(options, path);
  } else {
    show_rows(options.model, path, options.encode);
  }
  return kDone;
}

}  // namespace

Run add_data(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("--model", o->model, "Hugging Face folder or .gguf file")->required();
  app.add_option("--data", o->data, ".jsonl or .json file, -, or a folder")->required();
  app.add_option("--limit", o->encode.limit, "rows shown; 0: all")->check(AtLeast(0));
  add_encode_options(app, o->encode);
  app.add_flag("--json", o->json, "a line a row {\"ids\", \"labels\"}");
  return [o] { return run(*o); };
}

}  // namespace wgrad::cli
