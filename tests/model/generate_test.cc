#include "model/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/json.h"
#include "model/testing.h"

namespace wgrad::model::testing {
namespace {

using ::testing::HasSubstr;

GenerateOptions greedy(int64_t max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.temperature = 0;
  return options;
}

/// The likeliest next token, the whole sequence read anew.
uint32_t next_without_cache(Context& ctx, const Model& model, const std::vector<uint32_t>& ids) {
  Decoder decoder(ctx, model, nullptr, {});
  const std::vector<Row> rows = {{ids, {}}};
  const std::vector<float> logits =
      ctx.read<float>(decoder.logits(make_batch(ctx, rows, model.config.vocab_size)));
  const auto last = logits.end() - model.config.vocab_size;
  return static_cast<uint32_t>(std::max_element(last, logits.end()) - last);
}

class GenerateTest : public ::testing::TestWithParam<std::tuple<Device, std::string>> {
 protected:
  Context& ctx() const { return context(std::get<0>(GetParam())); }
  Model model() const { return load_model(ctx(), data_folder() / std::get<1>(GetParam()), {}); }
};

TEST_P(GenerateTest, TheCacheChangesNothing) {
  const Model loaded = model();
  const std::vector<uint32_t> prompt = {1, 17, 35, 8, 49, 4, 52};
  Generator generator(ctx(), loaded, nullptr);
  const std::vector<uint32_t> out = generator.generate(prompt, greedy(12));
  ASSERT_EQ(out.size(), 12u);
  std::vector<uint32_t> sequence = prompt;
  for (const uint32_t token : out) {
    EXPECT_EQ(next_without_cache(ctx(), loaded, sequence), token);
    sequence.push_back(token);
  }
}

TEST_P(GenerateTest, AContinuedChatGivesWhatAFreshOneGives) {
  const Model loaded = model();
  std::vector<uint32_t> prompt = {1, 17, 35, 8};
  Generator chat(ctx(), loaded, nullptr);
  for (int turn = 0; turn < 3; ++turn) {
    Generator fresh(ctx(), loaded, nullptr);
    const std::vector<uint32_t> out = chat.generate(prompt, greedy(5));
    EXPECT_EQ(out, fresh.generate(prompt, greedy(5)));
    prompt.insert(prompt.end(), out.begin(), out.end());
    prompt.push_back(static_cast<uint32_t>(20 + turn));
  }
  // A prompt that leaves the cached text early, and one that is a part of it.
  prompt[2] = 50;
  Generator fresh(ctx(), loaded, nullptr);
  EXPECT_EQ(chat.generate(prompt, greedy(5)), fresh.generate(prompt, greedy(5)));
  prompt.resize(2);
  EXPECT_EQ(chat.generate(prompt, greedy(5)), fresh.generate(prompt, greedy(5)));
}

class GreedyTest : public GenerateTest {};

TEST_P(GreedyTest, WritesTheTextOfTransformers) {
  const Model loaded = model();
  const Golden golden(data_folder() / std::get<1>(GetParam()) / "expected.safetensors");
  const auto ids = [&](const char* name) {
    const std::vector<int32_t> values = golden.integers(name);
    return std::vector<uint32_t>(values.begin(), values.end());
  };
  const std::vector<uint32_t> expected = ids("greedy");
  Generator generator(ctx(), loaded, nullptr);
  EXPECT_EQ(generator.generate(ids("prompt"), greedy(static_cast<int64_t>(expected.size()))),
            expected);
}

INSTANTIATE_TEST_SUITE_P(Families, GreedyTest,
                         ::testing::Combine(::testing::Values(Device::kCpu, Device::kSoftwareGpu),
                                            ::testing::ValuesIn(kFamilies)),
                         device_and_model);

INSTANTIATE_TEST_SUITE_P(Cpu, GenerateTest,
                         ::testing::Combine(::testing::Values(Device::kCpu),
                                            ::testing::ValuesIn(kModels)),
                         device_and_model);
INSTANTIATE_TEST_SUITE_P(SoftwareGpu, GenerateTest,
                         ::testing::Combine(::testing::Values(Device::kSoftwareGpu),
                                            ::testing::Values("mistral", "qwen3")),
                         device_and_model);

class GeneratorTest : public ::testing::Test {
 protected:
  Context& ctx_ = context(Device::kCpu);
  Model model_ = load_model(ctx_, data_folder() / "qwen2", {});
  Generator generator_{ctx_, model_, nullptr};
};

TEST_F(GeneratorTest, StopsAfterAStopToken) {
  const std::vector<uint32_t> prompt = {1, 17, 35};
  const std::vector<uint32_t> free = generator_.generate(prompt, greedy(6));
  GenerateOptions options = greedy(6);
  options.stop_ids = {free[2]};
  const std::vector<uint32_t> stopped = generator_.generate(prompt, options);
  const auto first = std::find(free.begin(), free.end(), free[2]);
  EXPECT_EQ(stopped, std::vector<uint32_t>(free.begin(), first + 1));
}

TEST_F(GeneratorTest, TheCallbackSeesEachTokenAndCanEnd) {
  std::vector<uint32_t> seen;
  GenerateOptions options = greedy(6);
  options.on_token = [&](uint32_t token) {
    seen.push_back(token);
    return seen.size() < 4;
  };
  const std::vector<uint32_t> prompt = {1, 17, 35};
  EXPECT_EQ(generator_.generate(prompt, options), seen);
  EXPECT_EQ(seen.size(), 4u);
}

TEST_F(GeneratorTest, FillsTheContextAndNoMore) {
  const std::vector<uint32_t> prompt(120, 5);
  // 120 and 8 more fill the 128 positions; the last token is drawn from the last position.
  EXPECT_EQ(generator_.generate(prompt, greedy(1000)).size(), 9u);
  const std::vector<uint32_t> long_prompt(128, 5);
  EXPECT_THAT(error_text([&] { generator_.generate(long_prompt, greedy(1)); }),
              HasSubstr("prompt: 128 tokens; "));
}

TEST_F(GeneratorTest, TheSeedDecidesTheDraws) {
  const std::vector<uint32_t> prompt = {1, 17, 35};
  GenerateOptions options;
  options.max_tokens = 20;
  options.temperature = 1.5;
  options.top_p = 1.0;
  options.seed = 3;
  const auto first = generator_.generate(prompt, options);
  EXPECT_EQ(generator_.generate(prompt, options), first);
  options.seed = 4;
  EXPECT_NE(generator_.generate(prompt, options), first);
}

TEST_F(GeneratorTest, RefusesSettingsOutOfRange) {
  const std::vector<uint32_t> prompt = {1};
  const auto message = [&](auto change) {
    GenerateOptions options;
    change(options);
    return error_text([&] { generator_.generate(prompt, options); });
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message([](auto& o) { o.temperature = -1; }), HasSubstr("temperature: -1"));
  EXPECT_THAT(message([&](auto& o) { o.temperature = nan; }), HasSubstr("temperature: nan"));
  EXPECT_THAT(message([](auto& o) { o.top_p = 0; }), HasSubstr("top-p: 0"));
  EXPECT_THAT(message([](auto& o) { o.top_p = 1.5; }), HasSubstr("top-p: 1.5"));
  EXPECT_THAT(message([](auto& o) { o.top_k = -2; }), HasSubstr("top-k: -2"));
  EXPECT_THAT(message([](auto& o) { o.max_tokens = 0; }), HasSubstr("max-tokens: 0"));
  EXPECT_THAT(error_text([&] { generator_.generate({}, GenerateOptions{}); }),
              HasSubstr("prompt: no tokens"));
}

GenerateOptions sampling(double temperature, double top_p, int64_t top_k) {
  GenerateOptions options;
  options.temperature = temperature;
  options.top_p = top_p;
  options.top_k = top_k;
  return options;
}

TEST(SampleTokenTest, DrawsByProbability) {
  // Probabilities 0.5, 0.25, 0.125, 0.125, the likeliest not first.
  const std::vector<float> logits = {std::log(0.125f), std::log(0.5f), std::log(0.25f),
                                     std::log(0.125f)};
  const auto draw = [&](double uniform) {
    return sample_token(logits, sampling(1.0, 1.0, 0), uniform);
  };
  EXPECT_EQ(draw(0.0), 1u);
  EXPECT_EQ(draw(0.49), 1u);
  EXPECT_EQ(draw(0.51), 2u);
  EXPECT_EQ(draw(0.74), 2u);
  EXPECT_EQ(draw(0.76), 0u);  // equal ones by their id
  EXPECT_EQ(draw(0.88), 3u);
  EXPECT_EQ(draw(0.9999999), 3u);
}

TEST(SampleTokenTest, TopKAndTopPCutTheTail) {
  const std::vector<float> logits = {std::log(0.125f), std::log(0.5f), std::log(0.25f),
                                     std::log(0.125f)};
  EXPECT_EQ(sample_token(logits, sampling(1.0, 1.0, 1), 0.999), 1u);
  EXPECT_EQ(sample_token(logits, sampling(1.0, 1.0, 2), 0.999), 2u);
  EXPECT_EQ(sample_token(logits, sampling(1.0, 0.4, 0), 0.999), 1u);
  EXPECT_EQ(sample_token(logits, sampling(1.0, 0.6, 0), 0.999), 2u);
  EXPECT_EQ(sample_token(logits, sampling(0.0, 1.0, 0), 0.999), 1u);
}

TEST(SampleTokenTest, RefusesLogitsThatAreNotFinite) {
  const std::vector<float> logits = {1.0f, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THAT(error_text([&] { sample_token(logits, sampling(1.0, 1.0, 0), 0.5); }),
              HasSubstr("not finite"));
}

/// The real model: named by WGRAD_SMOLLM2_GGUF, which `make test` sets.
TEST(SmolLm2Test, GreedyTextEqualsTransformers) {
  const char* path = std::getenv("WGRAD_SMOLLM2_GGUF");
  if (path == nullptr) GTEST_SKIP() << "WGRAD_SMOLLM2_GGUF does not name the model";
  Context& ctx = context(Device::kCpu);
  const Model model = load_model(ctx, path, {});
  Generator generator(ctx, model, nullptr);
  for (const auto& entry : io::read_json_file(data_folder() / "smollm2_greedy.json")) {
    const auto expected = entry.at("new_ids").get<std::vector<uint32_t>>();
    GenerateOptions options = greedy(static_cast<int64_t>(expected.size()));
    options.stop_ids = model.config.eos_ids;
    EXPECT_EQ(generator.generate(entry.at("ids").get<std::vector<uint32_t>>(), options), expected)
        << entry.at("prompt");
  }
}

}  // namespace
}  // namespace wgrad::model::testing
