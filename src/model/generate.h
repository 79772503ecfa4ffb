#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/decoder.h"

namespace wgrad::model {

struct GenerateOptions {
  int64_t max_tokens = 128;
  double temperature = 0.7;  ///< 0: the most likely token each time
  double top_p = 0.95;       ///< the smallest set of likely tokens with this much probability
  int64_t top_k = 0;         ///< the k likeliest only; 0: all
  uint64_t seed = 0;
  std::vector<uint32_t> stop_ids;
  /// Called with each new token (stop tokens included); false ends the generation.
  std::function<bool(uint32_t)> on_token;
};

/// Writes on from a prompt, with a key-value cache that is kept between calls: a prompt that begins
/// as the previous one ended (a chat) is not read again. Borrows what its decoder borrows.
class Generator {
 public:
  Generator(Context& ctx, const Model& model, const Adapter* adapter);

  /// The new tokens, a stop token last if one was drawn. An empty prompt, one that is too long for
  /// the model and settings out of range are input errors.
  std::vector<uint32_t> generate(std::span<const uint32_t> prompt, const GenerateOptions& options);

 private:
  std::vector<float> read_logits(std::span<const uint32_t> tokens);
  void reserve(int64_t positions);

  Context& ctx_;
  const Model& model_;
  Decoder decoder_;
  std::vector<KeyValueCache> caches_;
  std::vector<uint32_t> cached_;  ///< the tokens that the caches hold
  int64_t read_length_ = 0;       ///< of the row when they were last read
};

/// Draws one token from logits; `uniform` in [0, 1).
uint32_t sample_token(std::span<const float> logits, const GenerateOptions& options,
                      double uniform);

}  // namespace wgrad::model
