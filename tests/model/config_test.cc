#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "model/testing.h"

namespace wgrad::model::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 320},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4}};
}

json with(json base, const json& changes) {
  if (changes.is_object()) base.merge_patch(changes);
  return base;
}

json family(const char* architecture, const char* type, const json& changes) {
  return with(with(llama(), {{"architectures", {architecture}}, {"model_type", type}}), changes);
}

std::string refusal(const json& config) {
  return error_text([&] { parse_config(config, "config.json"); });
}

TEST(ConfigTest, FillsInWhatAFamilyLeavesOut) {
  const ModelConfig config = parse_config(llama(), "config.json");
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kNone);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_FALSE(config.has_bias(Projection::kQ));
  EXPECT_THAT(config.windows, ElementsAre(0, 0, 0));
  // 2 tables, 3 blocks of 4 square products, 3 of 64 x 96 and 2 norms, and the last norm.
  EXPECT_EQ(config.parameters(), 2 * 320 * 64 + 3 * (4 * 64 * 64 + 3 * 64 * 96 + 2 * 64) + 64);
}

TEST(ConfigTest, ReadsBothFormsOfRopeScaling) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  const ModelConfig old = parse_config(
      with(llama(), {{"rope_theta", 500000.0}, {"rope_scaling", scaling}}), "config.json");
  const ModelConfig now =
      parse_config(with(llama(), {{"rope_parameters", with(scaling, {{"rope_theta", 500000.0}})}}),
                   "config.json");
  EXPECT_EQ(old.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(rope_inverse_frequencies(old.rope, 16), rope_inverse_frequencies(now.rope, 16));
  const std::vector<double> plain = rope_inverse_frequencies({.theta = 500000.0}, 16);
  const std::vector<double> scaled = rope_inverse_frequencies(old.rope, 16);
  EXPECT_EQ(scaled.front(), plain.front());
  EXPECT_DOUBLE_EQ(scaled.back(), plain.back() / 8.0);
}

TEST(ConfigTest, SlidingWindowsFollowTheFamily) {
  const auto windows = [](const json& config) { return parse_config(config, "c").windows; };
  const json mistral = family("MistralForCausalLM", "mistral", {});
  EXPECT_THAT(windows(mistral), ElementsAre(4096, 4096, 4096));
  EXPECT_THAT(windows(with(mistral, {{"sliding_window", 7}})), ElementsAre(7, 7, 7));
  json none = mistral;
  none["sliding_window"] = nullptr;
  EXPECT_THAT(windows(none), ElementsAre(0, 0, 0));

  const json qwen = family("Qwen2ForCausalLM", "qwen2", {{"sliding_window", 9}});
  EXPECT_THAT(windows(qwen), ElementsAre(0, 0, 0));
  const json used = with(qwen, {{"use_sliding_window", true}, {"max_window_layers", 1}});
  EXPECT_THAT(windows(used), ElementsAre(0, 9, 9));
  const json typed =
      with(used, {{"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}});
  EXPECT_THAT(windows(typed), ElementsAre(9, 0, 9));
}

TEST(ConfigTest, BiasesAndHeadNormsFollowTheFamily) {
  const ModelConfig qwen2 = parse_config(family("Qwen2ForCausalLM", "qwen2", {}), "c");
  EXPECT_TRUE(qwen2.has_bias(Projection::kQ));
  EXPECT_TRUE(qwen2.has_bias(Projection::kV));
  EXPECT_FALSE(qwen2.has_bias(Projection::kO));
  EXPECT_FALSE(qwen2.qk_norm);
  const ModelConfig qwen3 =
      parse_config(family("Qwen3ForCausalLM", "qwen3", {{"head_dim", 20}}), "c");
  EXPECT_FALSE(qwen3.has_bias(Projection::kQ));
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_EQ(qwen3.query_size(), 80);
  const ModelConfig biased = parse_config(with(llama(), {{"attention_bias", true}}), "c");
  EXPECT_TRUE(biased.has_bias(Projection::kO));
  EXPECT_FALSE(biased.has_bias(Projection::kDown));
}

TEST(ConfigTest, AcceptsTheNotesThatProgramsLeave) {
  const ModelConfig config = parse_config(with(llama(), {{"torch_dtype", "bfloat16"},
                                                         {"transformers_version", "4.40.0"},
                                                         {"_name_or_path", "x"},
                                                         {"pretraining_tp", 1},
                                                         {"rope_interleaved", false},
                                                         {"some_new_switch", false},
                                                         {"eos_token_id", {2, 5}}}),
                                          "config.json");
  EXPECT_THAT(config.eos_ids, ElementsAre(2, 5));
}

struct Refusal {
  const char* what;
  json changes;
  const char* text;
};

class RefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, NamesFileAndField) {
  EXPECT_THAT(refusal(with(llama(), GetParam().changes)),
              AllOf(HasSubstr("config.json"), HasSubstr(GetParam().text)));
}

json scaled(const json& scaling) { return {{"rope_scaling", scaling}}; }

INSTANTIATE_TEST_SUITE_P(
    Fields, RefusalTest,
    ::testing::Values(
        Refusal{"Architecture", {{"architectures", {"GPT2LMHeadModel"}}}, "GPT2LMHeadModel"},
        Refusal{"Task", {{"architectures", {"LlamaForSequenceClassification"}}}, "unknown"},
        Refusal{"OtherType", {{"model_type", "mistral"}}, "model_type mistral"},
        Refusal{"ArchitecturesType", {{"architectures", "Llama"}}, "architectures is \"Llama\""},
        Refusal{"WrongType", {{"hidden_size", "64"}}, "hidden_size is \"64\""},
        Refusal{"Fraction", {{"hidden_size", 64.5}}, "hidden_size is 64.5"},
        Refusal{"Negative", {{"num_hidden_layers", -1}}, "num_hidden_layers is -1"},
        Refusal{"Zero", {{"vocab_size", 0}}, "vocab_size is 0"},
        Refusal{"Absurd", {{"vocab_size", 18446744073709551615u}}, "vocab_size is 1844674407"},
        Refusal{"Heads", {{"num_attention_heads", 5}}, "num_attention_heads is 5"},
        Refusal{"KvHeads", {{"num_key_value_heads", 3}}, "num_key_value_heads is 3"},
        Refusal{"OddHead", {{"head_dim", 15}}, "the size of a head is 15"},
        Refusal{"Missing", {{"intermediate_size", nullptr}}, "intermediate_size is missing"},
        Refusal{"Activation", {{"hidden_act", "gelu"}}, "hidden_act is \"gelu\""},
        Refusal{"Epsilon", {{"rms_norm_eps", 0.0}}, "rms_norm_eps is 0.0"},
        Refusal{"Flag", {{"tie_word_embeddings", 1}}, "tie_word_embeddings is 1"},
        Refusal{"Slices", {{"pretraining_tp", 2}}, "pretraining_tp is 2"},
        Refusal{"Quantised", {{"quantization_config", {{"bits", 4}}}}, "quantization_config is"},
        Refusal{"Unknown", {{"logit_scale", 0.5}}, "logit_scale is 0.5"},
        Refusal{"Dropout", {{"attention_dropout", 0.1}}, "attention_dropout is 0.1"},
        Refusal{"RopeKind", scaled({{"type", "yarn"}, {"factor", 2.0}}), "rope_type is \"yarn\""},
        Refusal{"RopeFactor", scaled({{"type", "linear"}}), "factor is missing"},
        Refusal{"RopeField", scaled({{"type", "linear"}, {"factor", 2.0}, {"beta_fast", 32}}),
                "beta_fast is 32"},
        Refusal{"RopeTheta", {{"rope_theta", -1.0}}, "rope_theta is -1.0"},
        Refusal{"Eos", {{"eos_token_id", "two"}}, "eos_token_id is \"two\""}),
    [](const auto& info) { return info.param.what; });

TEST(ConfigTest, NamesAMissingFolderAndADamagedFile) {
  TemporaryFolder folder;
  const std::filesystem::path model = folder.path() / "model";
  EXPECT_THAT(error_text([&] { read_config(model); }), HasSubstr(model.string()));
  std::filesystem::create_directory(model);
  EXPECT_THAT(error_text([&] { read_config(model); }), HasSubstr("config.json"));
  std::ofstream(model / "config.json") << "{\"model_type\": ";
  EXPECT_THAT(error_text([&] { read_config(model); }), HasSubstr("config.json:1:"));
}

TEST(ConfigTest, TakesEndTokensOfTheGenerationConfigToo) {
  TemporaryFolder folder;
  std::ofstream(folder.path() / "config.json") << with(llama(), {{"eos_token_id", 2}});
  std::ofstream(folder.path() / "generation_config.json") << json{{"eos_token_id", {7, 2}}};
  EXPECT_THAT(read_config(folder.path()).eos_ids, ElementsAre(2, 7));
}

}  // namespace
}  // namespace wgrad::model::testing
