#include "model/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "cpu/dropout.h"
#include "ops/elementwise.h"
#include "ops/largest.h"
#include "wgrad/error.h"

namespace wgrad::model {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
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

Tensor Generator::logits_after(std::span<const uint32_t> tokens) {
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
  return logits;
}

uint32_t Generator::choose(const Tensor& logits, std::span<const uint32_t> seen, double uniform,
                           const Sampling& sampling) const {
  if (sampling.temperature == 0 && sampling.repetition_penalty == 1.0) {
    const cpu::Largest likeliest = ops::largest(ctx_, logits);
    if (!likeliest.finite) throw logits_not_finite();
    return static_cast<uint32_t>(likeliest.index);
  }
  std::vector<float> values = ctx_.read<float>(logits);
  penalise_repetition(values, seen, sampling.repetition_penalty);
  return sample_token(values, sampling, uniform);
}

std::vector<uint32_t> Generator::generate(std::span<const uint32_t> prompt,
                                          const GenerateOptions& options) {
  check_sampling(options);
  if (options.max_tokens < 1) {
    throw input_error("max-tokens", fmt::format("{}", options.max_tokens), "at least 1");
  }
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

  stats_ = {};
  stats_.prompt_tokens = static_cast<int64_t>(prompt.size() - cached_.size());
  const auto begin = Clock::now();
  Tensor logits = logits_after(prompt.subspan(cached_.size()));
  Clock::time_point first;
  std::vector<uint32_t> seen(prompt.begin(), prompt.end());
  std::vector<uint32_t> out;
  while (true) {
    const uint32_t token = choose(logits, seen, uniform_at(options.seed, out.size()), options);
    if (out.empty()) {
      first = Clock::now();
      stats_.prompt_seconds = seconds_since(begin);
    }
    out.push_back(token);
    seen.push_back(token);
    const bool wanted = !options.on_token || options.on_token(token);
    const std::optional<Ending> ending = ending_after(token, wanted, out.size(), options);
    if (ending) {
      stats_.ending = *ending;
      stats_.new_tokens = static_cast<int64_t>(out.size());
      stats_.seconds = seconds_since(first);
      return out;
    }
    logits = logits_after(std::span(&token, 1));
  }
}

std::optional<Ending> Generator::ending_after(uint32_t token, bool wanted, size_t tokens,
                                              const GenerateOptions& options) const {
  if (!wanted) return Ending::kCallback;
  if (std::ranges::count(options.stop_ids, token) > 0) return Ending::kStopToken;
  if (static_cast<int64_t>(tokens) == options.max_tokens) return Ending::kMaxTokens;
  const bool full = static_cast<int64_t>(cached_.size()) == model_.config.max_positions;
  return full ? std::optional(Ending::kContextFull) : std::nullopt;
}

}  // namespace wgrad::model
