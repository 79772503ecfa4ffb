#include "ops/verify.h"

#include <fmt/format.h>

#include <CLI/Option.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "command.h"
#include "ops/verify_run.h"
#include "terminal.h"
#include "train/device_choice.h"
#include "train/verify_training.h"
#include "train_options.h"

namespace wgrad::cli {
namespace {

struct Options {
  std::string device = "auto";
  std::string only;
  bool quick = false;
  bool json = false;
};

nlohmann::ordered_json to_json(const ops::VerifyResult& r) {
  nlohmann::ordered_json json;
  json["kernel"] = r.kernel;
  json["what"] = r.what;
  json["path"] = r.path;
  json["worst_error"] = r.worst_error;
  json["bound"] = r.bound;
  json["where"] = r.where;
  json["passed"] = r.passed;
  return json;
}

void print_row(const ops::VerifyResult& r, const Colours& colours) {
  fmt::print("{}{}{}  {:<28} {:<10} {:>9.2e} of {:>9.2e}  {}\n",
             r.passed ? colours.green() : colours.red(), r.passed ? "ok  " : "FAIL",
             colours.reset(), r.kernel, r.path, r.worst_error, r.bound, r.what);
  if (!r.passed) fmt::print("      {}\n", r.where);
  std::fflush(stdout);
}

train::DeviceChoice choose_gpu(const std::string& selector) {
  train::DeviceChoice device = train::choose_device(selector);
  if (device.kind != DeviceKind::kGpu) {
    throw input_error(fmt::format("--device {}", selector), "there is no GPU to verify",
                      "the CPU is the reference itself",
                      "use --device software for a software driver, or install a Vulkan driver");
  }
  return device;
}

/// How many cases have ended, on a terminal, on a line that renews itself.
class CaseCount {
 public:
  explicit CaseCount(size_t cases) : cases_(cases), shown_(stderr_renews_lines()) {}
  void show(size_t ended) const {
    if (!shown_) return;
    fmt::print(stderr, "\r{} of {} cases\x1b[K", ended, cases_);
    std::fflush(stderr);
  }
  void clear() const {
    if (shown_) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  size_t cases_;
  bool shown_;
};

std::vector<ops::VerifyCase> cases_of(const Options& options, const train::DeviceChoice& device,
                                      ComputeType compute) {
  const auto level = options.quick ? ops::VerifyLevel::kQuick : ops::VerifyLevel::kFull;
  const std::unique_ptr<Context> plan = train::plan_context(device, compute);
  std::vector<ops::VerifyCase> cases = ops::verify_cases(*plan, level);
  for (ops::VerifyCase& c : train::training_cases()) cases.push_back(std::move(c));
  std::erase_if(cases, [&](const ops::VerifyCase& c) {
    return c.kernel.find(options.only) == std::string::npos;
  });
  if (cases.empty()) {
    throw input_error(fmt::format("--only {}", options.only), "no kernel has this in its name", {},
                      "wgrad verify --quick prints the names");
  }
  return cases;
}

int run(const Options& options) {
  const train::DeviceChoice device = choose_gpu(options.device);
  const ComputeType compute =
      device.adapter.features.shader_f16 ? ComputeType::kF16 : ComputeType::kF32;
  const std::vector<ops::VerifyCase> cases = cases_of(options, device, compute);
  const Colours colours(stdout_is_terminal());
  if (!options.json) fmt::print("{}\n", device.name());
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  int64_t failed = 0, passed = 0;
  const CaseCount count(cases.size());
  ops::VerifyRun verify;
  verify.open = [&] { return train::open_context(device, compute); };
  verify.workers = ops::verify_workers(device.adapter.memory_bytes);
  verify.progress = [&](size_t ended) { count.show(ended); };
  verify.report = [&](const ops::VerifyResult& result) {
    ++(result.passed ? passed : failed);
    if (options.json) {
      results.push_back(to_json(result));
    } else {
      count.clear();
      print_row(result, colours);
    }
  };
  ops::run_cases(cases, verify);
  count.clear();
  if (options.json) {
    nlohmann::ordered_json all;
    all["device"] = device.name();
    all["passed"] = passed;
    all["failed"] = failed;
    all["results"] = std::move(results);
    fmt::print("{}\n", all.dump());
  } else {
    fmt::print("{} passed, {} failed\n", passed, failed);
  }
  return failed == 0 ? kDone : kFailed;
}

}  // namespace

Run add_verify(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_device_option(app, o->device);
  app.add_flag("--quick", o->quick, "fewer and smaller shapes");
  app.add_option("--only", o->only, "kernels with this in their name");
  app.add_flag("--json", o->json, "one JSON object");
  return [o] { return run(*o); };
}

}  // namespace wgrad::cli
