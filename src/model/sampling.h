#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "wgrad/error.h"

namespace wgrad::model {

/// How the next token is drawn; each as transformers has it, in this order.
struct Sampling {
  double repetition_penalty = 1.0;  ///< weakens tokens that are there already; 1: off
  double temperature = 0.7;         ///< 0: the most likely token each time
  int64_t top_k = 0;                ///< the k likeliest only; 0: all
  double top_p = 0.95;  ///< the smallest set of likely tokens with this much probability
  double min_p = 0.0;   ///< those with this share of the likeliest one's probability; 0: all
};

/// Settings out of range are input errors.
void check_sampling(const Sampling& sampling);

/// What is thrown where a logit is not finite.
Error logits_not_finite();

/// Divides positive logits of the tokens in `seen` by the penalty, multiplies negative ones.
void penalise_repetition(std::span<float> logits, std::span<const uint32_t> seen, double penalty);

/// Draws one token from logits; `uniform` in [0, 1). The penalty is not applied here.
uint32_t sample_token(std::span<const float> logits, const Sampling& sampling, double uniform);

/// The tokens that can be drawn with their probabilities, the likeliest first, equal ones by id.
std::vector<std::pair<uint32_t, double>> token_chances(std::span<const float> logits,
                                                       const Sampling& sampling);

}  // namespace wgrad::model
