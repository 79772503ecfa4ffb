#include "io/checkpoint_source.h"
#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::HasSubstr;

const fs::path kModels = fs::path(WGRAD_TEST_DATA) / "models";

TEST(AdapterOptions, ThatNameNothingOrContradictAreRefused) {
  const Workplace place;
  const std::pair<Arguments, std::vector<std::string>> cases[] = {
      {{"--targets", "q_porj"}, {"q_porj", "matches no layer"}},
      {{"--target-regex", "("}, {"targets", "regular expression"}},
      {{"--target-regex", "lm_head", "--targets", "q_proj"}, {"--target-regex", "--targets"}},
      {{"--target-regex", "lm_head", "--layers-to-transform", "0"}, {"--layers-to-transform"}},
      {{"--layers-to-transform", "x"}, {"--layers-to-transform", "\"x\""}},
      {{"--layers-to-transform", "3"}, {"matches no layer"}},
      {{"--rank-pattern", "q_proj"}, {"--rank-pattern", "NAME=VALUE"}},
      {{"--rank-pattern", "q_proj=0"}, {"--rank-pattern", "q_proj=0"}},
      {{"--rank-pattern", "q_proj=99"}, {"rank: 99", "q_proj"}},
      {{"--alpha-pattern", "q_proj=nan"}, {"--alpha-pattern", "q_proj=nan"}},
      {{"--alpha-pattern", "lm_head=2"}, {"alpha_pattern", "lm_head"}},
      {{"--modules-to-save", "lm_heads"}, {"lm_heads", "matches no module"}},
      {{"--dora", "--targets", "embed_tokens"}, {"dora", "embed_tokens"}}};
  for (const auto& [options, words] : cases) {
    const Outcome outcome = run_program(place.train(options));
    EXPECT_EQ(outcome.code, 2);
    for (const std::string& word : words) EXPECT_THAT(outcome.err, HasSubstr(word));
    EXPECT_FALSE(fs::exists(place.path("out")));
  }
}

Arguments train_from(const Workplace& place, const std::string& adapter, const std::string& out) {
  return {"train",
          "--model",
          place.path("model"),
          "--data",
          place.path("train.jsonl"),
          "--out",
          out,
          "--device",
          "cpu",
          "--steps",
          "1",
          "--lr",
          "0",
          "--init-adapter",
          adapter};
}

TEST(AdapterOptions, OfAnAdapterToContinueAreItsOwn) {
  const Workplace place;
  const std::string adapter = kModels / "llama3/adapter";
  Arguments dora = train_from(place, adapter, place.path("out"));
  dora.push_back("--dora");
  const Outcome refused = run_program(dora);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--dora"));
  EXPECT_THAT(refused.err, HasSubstr("an adapter to continue from brings its own"));
}

/// At a learning rate of 0 what is written is what was read.
TEST(AdapterOptions, WhatIsContinuedIsWrittenAsItWasRead) {
  const Workplace place;
  for (const char* run : {"layers_llama3", "qdora_llama3"}) {
    const std::string adapter = kModels / "runs" / run / "adapter", out = place.path(run);
    const Outcome outcome = run_program(train_from(place, adapter, out));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto read = [](const fs::path& folder) {
      return nlohmann::json::parse(read_file(folder / "adapter_config.json"));
    };
    const nlohmann::json before = read(adapter), after = read(out);
    for (const char* field : {"r", "lora_alpha", "target_modules", "layers_to_transform",
                              "use_dora", "use_rslora", "rank_pattern", "modules_to_save"}) {
      EXPECT_EQ(after.at(field), before.at(field)) << field;
    }
    const auto mine = io::open_safetensors(fs::path(out) / "adapter_model.safetensors");
    const auto theirs = io::open_safetensors(fs::path(adapter) / "adapter_model.safetensors");
    EXPECT_EQ(mine->names(), theirs->names());
    for (const std::string& name : mine->names()) {
      std::vector<float> a(static_cast<size_t>(mine->get(name).elements())), b(a.size());
      mine->read_f32(name, a);
      theirs->read_f32(name, b);
      EXPECT_EQ(a, b) << name;
    }
  }
}

TEST(AdapterOptions, AQuantisedBaseIsNoneToMergeInto) {
  const Workplace place;
  const fs::path base = place.root() / "quantised";
  fs::copy(place.path("model"), base, fs::copy_options::recursive);
  nlohmann::json config = nlohmann::json::parse(read_file(base / "config.json"));
  config["quantization_config"] = {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}};
  write_file(base / "config.json", config.dump());
  const Outcome outcome = run_program({"merge", "--model", base, "--adapter",
                                       kModels / "llama3/adapter", "--out", place.path("merged")});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("quantization_config"));
  EXPECT_FALSE(fs::exists(place.path("merged")));
}

}  // namespace
}  // namespace wgrad::cli
