#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <memory>

#include "command.h"
#include "ops/export_kernels.h"

namespace wgrad::cli {

Run add_kernels(CLI::App& app) {
  auto folder = std::make_shared<std::string>();
  CLI::App* exporter = app.add_subcommand(
      "export", "Write the ten kernels as self-contained .wgsl files with manifest.json");
  exporter->add_option("folder", *folder, "folder to write into")->required();
  app.require_subcommand(1);
  return [folder] {
    ops::export_kernels(*folder);
    fmt::print(stderr, "kernels and manifest.json written to {}\n", *folder);
    return kDone;
  };
}

}  // namespace wgrad::cli
