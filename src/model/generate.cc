#include "model/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "cpu/dropout.h"
#include "ops/elementwise.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

void check(const GenerateOptions& options) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    throw input_error("temperature", fmt::format("{}", options.temperature), "a number from 0 up");
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    throw input_error("top-p", fmt::format("{}", options.top_p), "a number in (0, 1]");
  }
  if (options.top_k < 0) {
    throw input_error("top-k", fmt::format("{}", options.top_k), "0 (all) or more");
  }
  if (options.max_tokens < 1) {
    throw input_error("max-tokens", fmt::format("{}", options.max_tokens), "at least 1");
  }
}

/// The n-th uniform number in [0, 1) of a seed.
double uniform_at(uint64_t seed, uint64_t n) {
  const auto words =
      cpu::philox4x32({static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32), 0, 0},
                      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace

uint32_t sample_token(std::span<const float> logits, const GenerateOptions& options,
                      double uniform) {
  if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) {
    throw runtime_failure("generate", "a logit that is not finite", "finite logits",
                          "check the model's weights, or use --dtype f32");
  }
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options.temperature == 0) return static_cast<uint32_t>(best - logits.begin());

  // The likeliest first, equal ones by their id; only the part that can be drawn is sorted.
  std::vector<uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto likelier = [&](uint32_t a, uint32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < order.size()) {
    const auto end = order.begin() + options.top_k;
    std::nth_element(order.begin(), end - 1, order.end(), likelier);
    order.erase(end, order.end());
  }
  std::sort(order.begin(), order.end(), likelier);
  std::vector<double> mass(order.size());
  double total = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    mass[i] = std::exp((static_cast<double>(logits[order[i]]) - *best) / options.temperature);
    total += mass[i];
  }
  double kept = 0;
  size_t count = 0;
  while (count < order.size() && kept < options.top_p * total) kept += mass[count++];
  double left = uniform * kept;
  for (size_t i = 0; i < count; ++i) {
    left -= mass[i];
    if (left < 0) return order[i];
  }
  return order[count - 1];
}

Generator::Generator(Context& ctx, const Model& model, const Adapter* adapter)
    : ctx_(ctx),
      model_(model),
      decoder_(ctx, model, adapter, DecoderSettings{}),
      caches_(static_cast<size_t>(model.config.layers)) {}

void Generator::reserve(int64_t positions) {
  const int64_t held = caches_.front().keys ? caches_.front().keys.dim(0) : 0;
  if (positions <= held) return;
  const int64_t capacity =
      std::min(model_.config.max_positions, std::max({positions, 2 * held, int64_t{128}}));
  for (KeyValueCache& cache : caches_) {
    for (Tensor* rows : {&cache.keys, &cache.values}) {
      const Tensor grown =
          ctx_.allocate({capacity, model_.config.key_size()}, DType::kF32, "cache/keys and values");
      if (cache.length > 0) {
        ops::copy(ctx_, rows->rows(0, cache.length), grown.rows(0, cache.length));
      }
      *rows = grown;
    }
  }
}

std::vector<float> Generator::read_logits(std::span<const uint32_t> tokens) {
  std::vector<uint32_t> whole;
  const auto length = static_cast<int64_t>(cached_.size() + tokens.size());
  if (!cached_.empty() && !model_.config.same_rotation(read_length_, length)) {
    // The keys were turned by the frequencies of another length.
    whole = std::exchange(cached_, {});
    whole.insert(whole.end(), tokens.begin(), tokens.end());
    tokens = whole;
    for (KeyValueCache& cache : caches_) cache.length = 0;
  }
  read_length_ = length;
  const auto begin = static_cast<uint32_t>(cached_.size());
  reserve(length);
  const Batch batch = continue_row(ctx_, tokens, begin, model_.config.vocab_size);
  const Tensor logits = decoder_.next_logits(batch, caches_);
  cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  return ctx_.read<float>(logits);
}

std::vector<uint32_t> Generator::generate(std::span<const uint32_t> prompt,
                                          const GenerateOptions& options) {
  check(options);
  const int64_t most = model_.config.max_positions;
  if (prompt.empty()) throw input_error("prompt", "no tokens", "at least one");
  if (static_cast<int64_t>(prompt.size()) >= most) {
    throw input_error("prompt", fmt::format("{} tokens", prompt.size()),
                      fmt::format("fewer than the model's max_position_embeddings of {}", most),
                      "shorten it");
  }
  // What the cache already holds of this prompt is not read again; the last token always is, for
  // its logits.
  const auto common =
      std::mismatch(prompt.begin(), prompt.end() - 1, cached_.begin(), cached_.end());
  cached_.erase(common.second, cached_.end());
  for (KeyValueCache& cache : caches_) cache.length = static_cast<int64_t>(cached_.size());

  std::vector<float> logits = read_logits(prompt.subspan(cached_.size()));
  std::vector<uint32_t> out;
  while (true) {
    const double uniform = uniform_at(options.seed, out.size());
    const uint32_t token = sample_token(logits, options, uniform);
    out.push_back(token);
    const bool wanted = !options.on_token || options.on_token(token);
    const bool stop = std::find(options.stop_ids.begin(), options.stop_ids.end(), token) !=
                      options.stop_ids.end();
    const bool full = static_cast<int64_t>(out.size()) == options.max_tokens ||
                      static_cast<int64_t>(cached_.size()) == most;
    if (!wanted || stop || full) return out;
    logits = read_logits(std::span(&token, 1));
  }
}

}  // namespace wgrad::model
