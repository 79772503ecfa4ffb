#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "data/model_text.h"
#include "marked_text.h"

namespace wgrad::cli {
namespace {

struct Options {
  std::string model, data;
  data::EncodeOptions encode;
  std::string train_on = "assistant", prompt_style = "raw";
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
  options.encode.train_on = options.train_on == "all" ? TrainOn::kAll : TrainOn::kAssistant;
  options.encode.prompt_style =
      options.prompt_style == "chat" ? PromptStyle::kChat : PromptStyle::kRaw;
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
  app.add_option("--limit", o->encode.limit, "rows shown; 0: all")->check(CLI::NonNegativeNumber);
  app.add_option("--max-seq-len", o->encode.max_seq_len, "tokens a row is cut to; 0: no cut")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--train-on", o->train_on, "which tokens count")
      ->check(CLI::IsMember({"assistant", "all"}))
      ->capture_default_str();
  app.add_option("--prompt-style", o->prompt_style, "how prompt/completion strings are read")
      ->check(CLI::IsMember({"raw", "chat"}))
      ->capture_default_str();
  app.add_flag("--skip-bad-rows", o->encode.skip_bad_rows, "leave out rows that cannot be read");
  app.add_flag("--json", o->json, "a line a row {\"ids\", \"labels\"}");
  return [o] { return run(*o); };
}

}  // namespace wgrad::cli
