#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "command.h"
#include "ops/bench.h"
#include "ranges.h"
#include "terminal.h"
#include "train/bench_generation.h"
#include "train/bench_step.h"
#include "train/options.h"
#include "train/synthetic.h"
#include "train_options.h"
#include "wgrad/error.h"

namespace wgrad::cli {
namespace {

struct Options {
  std::string device = "auto";
  std::string dtype = "auto", method = "lora", recompute = "none";
  train::StepBench step;
  int64_t new_tokens = 64;
  bool generation = false;
  std::string only;
  bool step_only = false;
  bool plan = false, show_config = false;
  bool json = false;
};

template <typename E>
E enum_of(const std::string& word) {
  for (const auto& [name, value] : train::EnumNames<E>::pairs) {
    if (name == word) return value;
  }
  return E{};
}

nlohmann::ordered_json to_json(const train::StepTimes& t, const train::StepBench& bench) {
  nlohmann::ordered_json json;
  json["shape"] = bench.shape;
  json["rows"] = bench.rows;
  json["tokens_a_row"] = bench.tokens;
  json["seconds"] = t.seconds;
  json["tokens_per_second"] = t.tokens_per_second;
  json["outside_gpu"] = t.outside_gpu;
  json["gpu_seconds"] = t.gpu_seconds;
  json["model_tflops"] = t.model_flops / t.seconds / 1e12;
  json["dispatches"] = t.dispatches;
  json["peak_memory_bytes"] = t.peak_bytes;
  json["loss"] = t.loss;
  for (const auto& [kernel, seconds] : t.kernels) json["kernels"][kernel] = seconds;
  return json;
}

void print_kernels(const std::vector<train::KernelTime>& kernels, double total) {
  for (const auto& [kernel, seconds] : kernels) {
    if (seconds < 0.01 * total) break;
    fmt::print("  {:>8.3f} ms  {:>4.1f}%  {}\n", seconds * 1e3, 100.0 * seconds / total, kernel);
  }
}

void print(const train::StepTimes& t, const Options& o) {
  fmt::print("training step: {}, {}, {} rows of {} tokens\n", o.step.shape, o.method, o.step.rows,
             o.step.tokens);
  fmt::print("  {:.2f} ms, {:.0f} tokens/s, {:.2f} model TFLOP/s, peak {}\n", t.seconds * 1e3,
             t.tokens_per_second, t.model_flops / t.seconds / 1e12, format_bytes(t.peak_bytes));
  if (t.gpu_seconds == 0) return;
  fmt::print("  outside the GPU {:.1f}% of the step; {} dispatches, each alone {:.2f} ms in all\n",
             100.0 * t.outside_gpu, t.dispatches, t.gpu_seconds * 1e3);
  print_kernels(t.kernels, t.gpu_seconds);
}

nlohmann::ordered_json to_json(const ops::BenchResult& r, double share_of_copy) {
  nlohmann::ordered_json json;
  json["name"] = r.name;
  json["seconds"] = r.seconds;
  json["tflops"] = r.tflops;
  json["gigabytes_per_second"] = r.gigabytes_per_second;
  json["share_of_copy"] = share_of_copy;
  return json;
}

void print(const ops::BenchResult& r, double share_of_copy) {
  const std::string rate = r.tflops > 0 ? fmt::format("{:>8.2f} TFLOP/s", r.tflops)
                                        : fmt::format("{:>8.0f} GB/s   ", r.gigabytes_per_second);
  fmt::print("  {:<44} {:>10.4f} ms  {}  {:>5.1f}% of copy\n", r.name, r.seconds * 1e3, rate,
             100.0 * share_of_copy);
  std::fflush(stdout);
}

/// Generation of one sequence, and the share of the bandwidth of a copy that it reads at.
nlohmann::ordered_json bench_generation(const train::DeviceChoice& device, ComputeType compute,
                                        const Options& o) {
  double copy_rate = 0;
  {
    const std::unique_ptr<Context> ctx = train::open_context(device, compute);
    copy_rate = ops::run_bench(*ctx, ops::bench_cases(*ctx).front()).gigabytes_per_second;
  }
  const train::GenerationBench bench{o.step.shape,  o.step.tokens, o.new_tokens,
                                     o.step.method, o.step.rank,   o.step.dora};
  const train::GenerationTimes t = train::bench_generation(device, compute, bench);
  const double rate = static_cast<double>(t.bytes_a_token) / t.seconds_a_token / 1e9;
  nlohmann::ordered_json json;
  json["shape"] = bench.shape;
  json["prompt_tokens"] = bench.prompt_tokens;
  json["prompt_seconds"] = t.prompt_seconds;
  json["seconds_a_token"] = t.seconds_a_token;
  json["tokens_per_second"] = 1.0 / t.seconds_a_token;
  json["bytes_a_token"] = t.bytes_a_token;
  json["gigabytes_per_second"] = rate;
  json["share_of_copy"] = rate / copy_rate;
  json["outside_gpu"] = t.outside_gpu;
  json["gpu_seconds"] = t.gpu_seconds;
  json["dispatches"] = t.dispatches;
  json["peak_memory_bytes"] = t.peak_bytes;
  for (const auto& [kernel, seconds] : t.kernels) json["kernels"][kernel] = seconds;
  if (o.json) return json;
  fmt::print("generation: {}, {} tokens after a prompt of {}\n", bench.shape, bench.new_tokens,
             bench.prompt_tokens);
  fmt::print(
      "  prompt {:.2f} ms; {:.3f} ms a token, {:.1f} tokens/s; {} a token at {:.0f} GB/s, "
      "{:.1f}% of a copy's {:.0f}; peak {}\n",
      t.prompt_seconds * 1e3, t.seconds_a_token * 1e3, 1.0 / t.seconds_a_token,
      format_bytes(t.bytes_a_token), rate, 100.0 * rate / copy_rate, copy_rate,
      format_bytes(t.peak_bytes));
  if (t.gpu_seconds == 0) return json;
  fmt::print("  outside the GPU {:.1f}% of a token; {} dispatches, each alone {:.3f} ms in all\n",
             100.0 * t.outside_gpu, t.dispatches, t.gpu_seconds * 1e3);
  print_kernels(t.kernels, t.gpu_seconds);
  return json;
}

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// The cases whose names have the text of --only, after the first: the copy that all are compared
/// with.
std::vector<ops::BenchCase> chosen_cases(const Context& ctx, const std::string& only) {
  const std::vector<ops::BenchCase> all = ops::bench_cases(ctx);
  std::vector<ops::BenchCase> chosen = {all.front()};
  const auto matches = [&](const ops::BenchCase& c) {
    return lower_case(c.name).find(lower_case(only)) != std::string::npos;
  };
  std::copy_if(all.begin() + 1, all.end(), std::back_inserter(chosen), matches);
  if (chosen.size() > 1 || matches(all.front())) return chosen;
  std::set<std::string> names;
  for (const ops::BenchCase& c : all) names.insert(c.name.substr(0, c.name.find_first_of(" ,")));
  throw input_error(
      fmt::format("--only \"{}\"", only), "no kernel's line on this device has this text",
      fmt::format("expected a part of a line of {}", fmt::join(names, ", ")), "give another text");
}

/// Every kernel, with its share of the bandwidth of the copy measured first.
nlohmann::ordered_json bench_kernels(const train::DeviceChoice& device, ComputeType compute,
                                     const Options& o) {
  const std::unique_ptr<Context> ctx = train::open_context(device, compute);
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  double copy_rate = 0;
  for (const ops::BenchCase& c : chosen_cases(*ctx, o.only)) {
    const ops::BenchResult r = ops::run_bench(*ctx, c);
    if (copy_rate == 0) copy_rate = r.gigabytes_per_second;
    const double share = copy_rate > 0 ? r.gigabytes_per_second / copy_rate : 0.0;
    results.push_back(to_json(r, share));
    if (!o.json) print(r, share);
    ctx->trim();
  }
  return results;
}

int run(Options& o) {
  if (o.show_config) {
    fmt::print("{}\n", train::shape_json(o.step.shape));
    return kDone;
  }
  const train::DeviceChoice device = train::choose_device(o.device);
  const ComputeType compute = train::choose_compute(enum_of<Precision>(o.dtype), device);
  o.step.method = enum_of<Method>(o.method);
  if (o.step.dora && o.step.method == Method::kFull) {
    throw input_error("--dora", "with --method full", "an adapter whose weights it scales",
                      "choose --method lora or qlora");
  }
  o.step.recompute = enum_of<Recompute>(o.recompute);
  nlohmann::ordered_json json;
  json["device"] = device.name();
  if (o.plan) {
    json["peak_memory_bytes"] = train::plan_step_bytes(device, compute, o.step);
    fmt::print("{}\n", json.dump());
    return kDone;
  }
  if (!o.json) fmt::print("{}\n", device.name());
  if (o.generation) {
    json["generation"] = bench_generation(device, compute, o);
    if (o.json) fmt::print("{}\n", json.dump());
    return kDone;
  }
  if (!o.step_only) json["kernels"] = bench_kernels(device, compute, o);
  if (!o.only.empty()) {
    if (o.json) fmt::print("{}\n", json.dump());
    return kDone;
  }
  const train::StepTimes times = train::bench_step(device, compute, o.step);
  if (o.json) {
    json["step"] = to_json(times, o.step);
    fmt::print("{}\n", json.dump());
  } else {
    print(times, o);
  }
  return kDone;
}

}  // namespace

Run add_bench(CLI::App& app) {
  auto o = std::make_shared<Options>();
  add_device_option(app, o->device);
  app.add_option("--dtype", o->dtype, "operands of the large products")
      ->check(CLI::IsMember({"auto", "f32", "f16"}))
      ->capture_default_str();
  app.add_option("--shape", o->step.shape,
                 "of the training step: smollm2-135m, llama-3.2-1b, gemma-2-2b, qwen3-4b or "
                 "llama-3.1-8b")
      ->capture_default_str();
  app.add_option("--method", o->method, "what the step trains")
      ->check(CLI::IsMember({"lora", "qlora", "full"}))
      ->capture_default_str();
  app.add_option("--rank", o->step.rank, "LoRA rank")->check(AtLeast(1))->capture_default_str();
  app.add_flag("--dora", o->step.dora, "with the adapter's weights scaled by DoRA");
  app.add_option("--rows", o->step.rows, "rows a step")->check(AtLeast(1))->capture_default_str();
  app.add_option("--tokens", o->step.tokens, "tokens a row")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_option("--steps", o->step.steps, "steps that are timed")
      ->check(AtLeast(1))
      ->capture_default_str();
  app.add_option("--recompute", o->recompute, "keep activations, or each block's input alone")
      ->check(CLI::IsMember({"none", "block"}))
      ->capture_default_str();
  app.add_flag(
         "--generation", o->generation,
         "time writing --new-tokens after a prompt of --tokens, in place of all else; with the "
         "adapter of --method, full: none")
      ->excludes("--rows");
  app.add_option(
      "--only", o->only,
      "time only kernels whose lines have this text, as attention_backward; no training step");
  app.add_option("--new-tokens", o->new_tokens, "tokens that --generation writes")
      ->check(CLI::Range(2, 1 << 16))
      ->capture_default_str();
  app.add_flag("--step-only", o->step_only, "leave the single kernels out");
  app.add_flag("--plan", o->plan, "the step's peak memory as JSON, without running it");
  app.add_flag("--show-config", o->show_config, "the shape's config.json alone");
  app.add_flag("--json", o->json, "one JSON object");
  return [o] { return run(*o); };
}

}  // namespace wgrad::cli
