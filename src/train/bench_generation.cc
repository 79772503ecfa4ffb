#include "train/bench_generation.h"

#include <algorithm>
#include <optional>

#include "model/generate.h"
#include "train/synthetic.h"

namespace wgrad::train {
namespace {

/// Devices raise their clocks within this time of work.
constexpr double kWarmSeconds = 1.0;

class SyntheticGeneration {
 public:
  SyntheticGeneration(Context& ctx, const model::ModelConfig& config, const GenerationBench& bench)
      : model_(model::load_model(ctx, config, random_weights(config),
                                 {bench.method == Method::kQlora ? ops::WeightPrecision::kNF4
                                                                 : ops::WeightPrecision::kCompute,
                                  false})),
        vocab_size_(config.vocab_size),
        prompt_(random_rows(1, bench.prompt_tokens, config.vocab_size).front().ids) {
    if (bench.method != Method::kFull) {
      const model::LoraConfig lora{.rank = bench.rank, .dora = bench.dora};
      adapter_ = model::Adapter::create(ctx, model_, lora, 0);
    }
    generator_.emplace(ctx, model_, adapter_ ? &*adapter_ : nullptr);
  }

  /// Calls on_token() after each of `count` new tokens.
  template <typename F>
  void run(int64_t count, const F& on_token) {
    // Another first token, so that nothing of the prompt is in the cache.
    prompt_.front() = (prompt_.front() + 1) % static_cast<uint32_t>(vocab_size_);
    model::GenerateOptions options;
    options.max_tokens = count;
    options.temperature = 0;
    options.on_token = [&](uint32_t) {
      on_token();
      return true;
    };
    generator_->generate(prompt_, options);
  }

  /// What every token reads of the model and the adapter: of an embedding apart only one row.
  int64_t weight_bytes() const {
    const int64_t adapter = adapter_ ? 4 * adapter_->parameters().count() : 0;
    const bool tied = model_.config.tied_embeddings;
    return model_.weight_bytes() - (tied ? 0 : model_.embedding.bytes()) + adapter;
  }

 private:
  model::Model model_;
  int64_t vocab_size_;
  std::vector<uint32_t> prompt_;
  std::optional<model::Adapter> adapter_;
  std::optional<model::Generator> generator_;
};

/// Seconds until each token, the first from the start of the prompt.
std::vector<double> time_tokens(SyntheticGeneration& generation, int64_t count) {
  std::vector<double> seconds;
  BenchClock::time_point last = BenchClock::now();
  generation.run(count, [&] {
    seconds.push_back(seconds_since(last));
    last = BenchClock::now();
  });
  return seconds;
}

}  // namespace

GenerationTimes bench_generation(const DeviceChoice& device, ComputeType compute,
                                 const GenerationBench& bench) {
  const model::ModelConfig config = shape_config(bench.shape);
  const std::unique_ptr<Context> ctx = open_context(device, compute);
  SyntheticGeneration generation(*ctx, config, bench);
  const BenchClock::time_point start = BenchClock::now();
  do {
    time_tokens(generation, bench.new_tokens);
  } while (seconds_since(start) < kWarmSeconds);

  GenerationTimes times;
  std::vector<double> seconds = time_tokens(generation, bench.new_tokens);
  times.prompt_seconds = seconds.front();
  seconds.erase(seconds.begin());
  times.seconds_a_token = median(seconds);
  const int64_t middle = bench.prompt_tokens + bench.new_tokens / 2;
  times.bytes_a_token = generation.weight_bytes() + 8 * middle * config.key_size() * config.layers;
  times.peak_bytes = ctx->peak_bytes();
  if (ctx->kind() != DeviceKind::kGpu) return times;

  const auto time_one = [&](gpu::Timed timed) {
    KernelTimes one;
    int64_t token = 0;
    generation.run(2, [&] {
      if (token++ == 0) {
        times.dispatches = static_cast<int64_t>(ctx->device().statistics().dispatches);
        if (ctx->features().timestamps) ctx->device().start_timing(timed);
        return;
      }
      times.dispatches =
          static_cast<int64_t>(ctx->device().statistics().dispatches) - times.dispatches;
      if (ctx->features().timestamps) one = take_kernel_times(*ctx);
    });
    return one;
  };
  times.outside_gpu =
      std::max(0.0, 1.0 - time_one(gpu::Timed::kPasses).total / times.seconds_a_token);
  KernelTimes kernels = time_one(gpu::Timed::kDispatches);
  times.gpu_seconds = kernels.total;
  times.kernels = std::move(kernels.by_kernel);
  return times;
}

}  // namespace wgrad::train
