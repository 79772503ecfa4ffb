#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "train/report.h"

namespace wgrad::cli {
namespace {

struct Options {
  std::string run;
  bool json = false;
};

int report(const Options& options) {
  train::write_report(options.run);
  const std::string page = (std::filesystem::path(options.run) / "report.html").string();
  if (options.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"report", page}}.dump(
                           -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    fmt::print("{}\n", page);
  }
  return kDone;
}

}  // namespace

Run add_report(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("run", options->run, "folder of a run, as --out of train")->required();
  app.add_flag("--json", options->json, "one JSON object");
  return [options] { return report(*options); };
}

}  // namespace wgrad::cli
