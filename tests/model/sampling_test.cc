#include "model/sampling.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "io/json.h"
#include "model/testing.h"

namespace wgrad::model::testing {
namespace {

Sampling settings(const nlohmann::json& from) {
  Sampling sampling;
  sampling.temperature = from.at("temperature");
  sampling.top_k = from.at("top_k");
  sampling.top_p = from.at("top_p");
  sampling.min_p = from.at("min_p");
  sampling.repetition_penalty = from.at("repetition_penalty");
  return sampling;
}

/// Written by tools/goldens/make_sampling_goldens.py.
TEST(SamplingGoldens, LeaveTheTokensAndChancesOfTransformersProcessors) {
  for (const auto& golden : io::read_json_file(data_folder() / "sampling.json")) {
    auto logits = golden.at("logits").get<std::vector<float>>();
    const auto seen = golden.at("seen").get<std::vector<uint32_t>>();
    const Sampling sampling = settings(golden);
    penalise_repetition(logits, seen, sampling.repetition_penalty);
    const auto chances = token_chances(logits, sampling);
    const auto ids = golden.at("ids").get<std::vector<uint32_t>>();
    const auto expected = golden.at("chances").get<std::vector<double>>();
    ASSERT_EQ(chances.size(), ids.size()) << sampling.top_p << " " << sampling.min_p;
    for (size_t i = 0; i < ids.size(); ++i) {
      // Theirs are rounded to f32 after each step: a few times 2^-24 of logits up to 10.
      EXPECT_NEAR(chances[i].second, expected[i], 4e-6 * expected[i]) << i;
      const bool tied = (i > 0 && chances[i].second == chances[i - 1].second) ||
                        (i + 1 < ids.size() && chances[i].second == chances[i + 1].second);
      EXPECT_TRUE(tied || chances[i].first == ids[i]) << i;
    }
  }
}

TEST(SampleToken, DrawsAsTheChancesSayWhateverIsSorted) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(1000);
  for (float& x : logits) x = normal(random);
  Sampling sampling;
  sampling.temperature = 1.3;
  sampling.top_p = 1.0;
  const auto chances = token_chances(logits, sampling);
  ASSERT_EQ(chances.size(), logits.size());
  double before = 0;
  for (const auto& [id, chance] : chances) {
    EXPECT_EQ(sample_token(logits, sampling, before + 0.5 * chance), id);
    before += chance;
  }
  EXPECT_NEAR(before, 1.0, 1e-12);
}

}  // namespace
}  // namespace wgrad::model::testing
