#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/decoder.h"
#include "model/sampling.h"

namespace wgrad::model {

struct GenerateOptions : Sampling {
  int64_t max_tokens = 128;
  uint64_t seed = 0;
  std::vector<uint32_t> stop_ids;
  /// Called with each new token (stop tokens included); false ends the generation.
  std::function<bool(uint32_t)> on_token;
};

/// Why a text ended.
enum class Ending : uint8_t { kStopToken, kMaxTokens, kContextFull, kCallback };

struct GenerateStats {
  Ending ending = Ending::kMaxTokens;
  int64_t prompt_tokens = 0;  ///< read now; the others were in the cache
  double prompt_seconds = 0;  ///< until the first new token
  int64_t new_tokens = 0;
  double seconds = 0;  ///< of all new tokens but the first
};

/// Writes on from a prompt, with a key-value cache that is kept between calls: a prompt that begins
/// as the previous one ended (a chat) is not read again. Borrows what its decoder borrows.
class Generator {
 public:
  Generator(Context& ctx, const Model& model, const Adapter* adapter);

  /// The new tokens, a stop token last if one was drawn. An empty prompt, one that is too long for
  /// the model and settings out of range are input errors.
  std::vector<uint32_t> generate(std::span<const uint32_t> prompt, const GenerateOptions& options);
  /// Of the last generate().
  const GenerateStats& stats() const { return stats_; }

 private:
  /// Of the token that follows `tokens`, which follow those in the caches.
  Tensor logits_after(std::span<const uint32_t> tokens);
  uint32_t choose(const Tensor& logits, std::span<const uint32_t> seen, double uniform,
                  const Sampling& sampling) const;
  void reserve(int64_t positions);
  std::optional<Ending> ending_after(uint32_t token, bool wanted, size_t tokens,
                                     const GenerateOptions& options) const;

  Context& ctx_;
  const Model& model_;
  Decoder decoder_;
  std::vector<KeyValueCache> caches_;
  std::vector<uint32_t> cached_;  ///< the tokens that the caches hold
  int64_t read_length_ = 0;       ///< of the row when they were last read
  GenerateStats stats_;
};

}  // namespace wgrad::model
