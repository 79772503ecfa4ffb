#include "model/merge.h"

#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <filesystem>
#include <memory>

#include "command.h"
#include "wgrad/error.h"

namespace wgrad::cli {
namespace {

struct Options {
  std::string model, adapter, out;
};

}  // namespace

Run add_merge(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("--model", o->model, "the base: Hugging Face folder or .gguf file")->required();
  app.add_option("--adapter", o->adapter, "PEFT adapter folder")->required();
  app.add_option("--out", o->out, "folder to write; must not exist")->required();
  return [o] {
    if (std::filesystem::path(o->out).extension() == ".gguf") {
      throw input_error(fmt::format("--out {}", o->out), "the name of a GGUF file",
                        "a folder: merge writes the form of Hugging Face",
                        "use `wgrad export` with the same options for a GGUF file");
    }
    const int64_t quantised = model::merge_adapter(o->model, o->adapter, o->out);
    fmt::print(stderr, "wrote {}: {} with {} merged into it\n", o->out, o->model, o->adapter);
    if (quantised > 0) {
      fmt::print(stderr, "{} tensors of the base are quantised; they were written in f32\n",
                 quantised);
    }
    return kDone;
  };
}

}  // namespace wgrad::cli
