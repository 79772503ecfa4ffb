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
  ASSERT_EQ(config.ropes.size(), 1u);
  EXPECT_EQ(config.ropes[0].theta, 10000.0);
  EXPECT_EQ(config.ropes[0].scaling, RopeScaling::kNone);
  EXPECT_THAT(config.layer_ropes, ElementsAre(0, 0, 0));
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
  EXPECT_EQ(old.ropes[0].scaling, RopeScaling::kLlama3);
  const std::vector<double> scaled = rope_inverse_frequencies(old.ropes[0], 1);
  EXPECT_EQ(scaled, rope_inverse_frequencies(now.ropes[0], 1));
  const std::vector<double> plain =
      rope_inverse_frequencies({.theta = 500000.0, .rotary_dim = 16}, 1);
  EXPECT_EQ(scaled.front(), plain.front());
  EXPECT_DOUBLE_EQ(scaled.back(), plain.back() / 8.0);
}

TEST(ConfigTest, ASizeThatIsNullIsMissing) {
  json config = llama();
  config["intermediate_size"] = nullptr;
  EXPECT_THAT(refusal(config), HasSubstr("intermediate_size is missing"));
}

TEST(ConfigTest, SlidingWindowsFollowTheFamily) {
  const auto windows = [](const json& config) { return parse_config(config, "c").windows; };
  const json mistral = family("MistralForCausalLM", "mistral", {{"num_key_value_heads", 4}});
  EXPECT_THAT(windows(mistral), ElementsAre(4096, 4096, 4096));
  EXPECT_THAT(windows(with(mistral, {{"sliding_window", 7}})), ElementsAre(7, 7, 7));
  json none = mistral;
  none["sliding_window"] = nullptr;
  EXPECT_THAT(windows(none), ElementsAre(0, 0, 0));

  const json qwen =
      family("Qwen2ForCausalLM", "qwen2", {{"sliding_window", 9}, {"num_key_value_heads", 4}});
  EXPECT_THAT(windows(qwen), ElementsAre(0, 0, 0));
  json no_window = with(qwen, {{"use_sliding_window", true}, {"max_window_layers", 0}});
  no_window["sliding_window"] = nullptr;
  EXPECT_THAT(windows(no_window), ElementsAre(0, 0, 0));
  const json used = with(qwen, {{"use_sliding_window", true}, {"max_window_layers", 1}});
  EXPECT_THAT(windows(used), ElementsAre(0, 9, 9));
  const json typed =
      with(used, {{"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}});
  EXPECT_THAT(windows(typed), ElementsAre(9, 0, 9));
}

TEST(ConfigTest, BiasesAndHeadNormsFollowTheFamily) {
  const ModelConfig qwen2 =
      parse_config(family("Qwen2ForCausalLM", "qwen2", {{"num_key_value_heads", 2}}), "c");
  EXPECT_TRUE(qwen2.has_bias(Projection::kQ));
  EXPECT_TRUE(qwen2.has_bias(Projection::kV));
  EXPECT_FALSE(qwen2.has_bias(Projection::kO));
  EXPECT_EQ(qwen2.qk_norm, QkNorm::kNone);
  const ModelConfig qwen3 = parse_config(
      family("Qwen3ForCausalLM", "qwen3", {{"head_dim", 20}, {"num_key_value_heads", 2}}), "c");
  EXPECT_FALSE(qwen3.has_bias(Projection::kQ));
  EXPECT_EQ(qwen3.qk_norm, QkNorm::kHead);
  EXPECT_EQ(qwen3.query_size(), 80);
  const ModelConfig biased = parse_config(with(llama(), {{"attention_bias", true}}), "c");
  EXPECT_TRUE(biased.has_bias(Projection::kO));
  EXPECT_FALSE(biased.has_bias(Projection::kDown));
}

TEST(ConfigTest, FusedLayersHoldTheirPartsInOrder) {
  const ModelConfig config =
      parse_config(family("Phi3ForCausalLM", "phi3", {{"num_key_value_heads", 2}}), "c");
  EXPECT_THAT(config.projections(), ElementsAre(Projection::kQkv, Projection::kO,
                                                Projection::kGateUp, Projection::kDown));
  EXPECT_THAT(parts_of(Projection::kQkv),
              ElementsAre(Projection::kQ, Projection::kK, Projection::kV));
  EXPECT_EQ(config.stored_in(Projection::kUp), Projection::kGateUp);
  EXPECT_EQ(config.out_features(Projection::kQkv), 64 + 32 + 32);
  EXPECT_EQ(config.in_features(Projection::kQkv), 64);
  EXPECT_EQ(config.out_features(Projection::kGateUp), 192);
  EXPECT_EQ(config.module_name(1, Projection::kGateUp), "model.layers.1.mlp.gate_up_proj");
}

TEST(ConfigTest, SomeLayersDoNotTurn) {
  const auto read = [](const json& changes) {
    return parse_config(family("SmolLM3ForCausalLM", "smollm3", changes), "c");
  };
  EXPECT_THAT(read({{"no_rope_layer_interval", 2}}).layer_ropes, ElementsAre(0, kNoRope, 0));
  const ModelConfig listed =
      read({{"no_rope_layers", {0, 1, 1, 1}}, {"use_sliding_window", true}, {"sliding_window", 9}});
  EXPECT_THAT(listed.layer_ropes, ElementsAre(kNoRope, 0, 0));
  EXPECT_THAT(listed.windows, ElementsAre(9, 0, 0));
  EXPECT_EQ(listed.ropes[0].theta, 2e6);
  EXPECT_TRUE(listed.tied_embeddings);
}

TEST(ConfigTest, DynamicScalingLengthensTheContext) {
  const ModelConfig config =
      parse_config(with(llama(), {{"max_position_embeddings", 100},
                                  {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.5}}}}),
                   "c");
  EXPECT_EQ(config.max_positions, 250);
  EXPECT_TRUE(config.same_rotation(1, 100));
  EXPECT_FALSE(config.same_rotation(100, 101));
  EXPECT_FALSE(config.same_rotation(102, 101));
}

TEST(ConfigTest, NormsFollowTheFamily) {
  const auto names = [](const ModelConfig& config) {
    std::vector<std::string> found;
    for (const NormSpec& norm : config.norms()) found.emplace_back(norm.name);
    return found;
  };
  EXPECT_THAT(names(parse_config(llama(), "c")),
              ElementsAre("input_layernorm", "post_attention_layernorm"));
  const ModelConfig olmo2 =
      parse_config(family("Olmo2ForCausalLM", "olmo2", {{"num_key_value_heads", 2}}), "c");
  EXPECT_THAT(names(olmo2), ElementsAre("self_attn.q_norm", "self_attn.k_norm",
                                        "post_attention_layernorm", "post_feedforward_layernorm"));
  EXPECT_EQ(olmo2.norms()[0].size, 64);
  EXPECT_EQ(olmo2.norms()[1].size, 32);
}

TEST(ConfigTest, GemmaFillsInWhatItLeavesOut) {
  const auto read = [](const char* architecture, const char* type, const json& changes) {
    return parse_config(
        family(architecture, type, with({{"head_dim", 16}, {"hidden_act", "silu"}}, changes)), "c");
  };
  const ModelConfig second = read("Gemma2ForCausalLM", "gemma2", {});
  EXPECT_THAT(second.windows, ElementsAre(4096, 0, 4096));
  EXPECT_EQ(second.attention_soft_cap, 50.0f);
  EXPECT_EQ(second.logits.soft_cap, 30.0);
  EXPECT_EQ(second.attention_scale, 1.0f / 16);
  EXPECT_EQ(second.embedding_scale, 8.0f);
  EXPECT_EQ(second.norm_offset, 1.0f);
  EXPECT_EQ(second.activation, ops::Activation::kGeluTanh);
  EXPECT_EQ(second.kv_heads, 4);
  EXPECT_EQ(second.norms().size(), 4u);
  json uncapped = family("Gemma2ForCausalLM", "gemma2", {{"head_dim", 16}});
  uncapped["attn_logit_softcapping"] = uncapped["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(parse_config(uncapped, "c").attention_soft_cap, 0.0f);
  EXPECT_EQ(parse_config(uncapped, "c").logits.soft_cap, 0.0);

  const json older = {{"sliding_window_pattern", 3},
                      {"sliding_window", 7},
                      {"rope_local_base_freq", 5000.0},
                      {"rope_theta", 2e6},
                      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}};
  const ModelConfig third = read("Gemma3ForCausalLM", "gemma3_text", older);
  EXPECT_THAT(third.windows, ElementsAre(7, 7, 0));
  EXPECT_THAT(third.layer_ropes, ElementsAre(1, 1, 0));
  EXPECT_EQ(third.ropes[0].theta, 2e6);
  EXPECT_EQ(third.ropes[0].factor, 8.0);
  EXPECT_EQ(third.ropes[1].theta, 5000.0);
  EXPECT_EQ(third.ropes[1].scaling, RopeScaling::kNone);
  EXPECT_EQ(third.logits.soft_cap, 0.0);
  EXPECT_EQ(third.qk_norm, QkNorm::kHead);
}

TEST(ConfigTest, RefusesWhatAFamilyHasNot) {
  const auto refused = [](const char* architecture, const char* type, const json& changes) {
    return refusal(family(architecture, type, with({{"head_dim", 16}}, changes)));
  };
  EXPECT_THAT(refused("Gemma3ForCausalLM", "gemma3_text", {{"attn_logit_softcapping", 50.0}}),
              HasSubstr("attn_logit_softcapping is 50.0"));
  EXPECT_THAT(refused("Gemma3ForCausalLM", "gemma3_text", {{"hidden_activation", "gelu"}}),
              HasSubstr("hidden_activation is \"gelu\""));
  EXPECT_THAT(refused("Gemma3ForCausalLM", "gemma3_text", {{"use_bidirectional_attention", true}}),
              HasSubstr("use_bidirectional_attention is true"));
  EXPECT_THAT(
      refused("Phi3ForCausalLM", "phi3", {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}),
      HasSubstr("neither default nor longrope"));
  EXPECT_THAT(refused("Phi3ForCausalLM", "phi3", {{"resid_pdrop", 0.1}}),
              HasSubstr("resid_pdrop is 0.1"));
  EXPECT_THAT(refused("SmolLM3ForCausalLM", "smollm3",
                      {{"num_key_value_heads", 4}, {"no_rope_layers", {1, 0}}}),
              HasSubstr("no_rope_layers is [1,0]"));
  EXPECT_THAT(refused("Olmo2ForCausalLM", "olmo2", {{"clip_qkv", 8.0}}),
              HasSubstr("clip_qkv is 8.0"));
  EXPECT_THAT(refused("GraniteForCausalLM", "granite", {{"logits_scaling", 0.0}}),
              HasSubstr("logits_scaling is 0.0"));
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
        Refusal{"NoNumber", {{"intermediate_size", ""}}, "intermediate_size is \"\""},
        Refusal{"Activation", {{"hidden_act", "gelu"}}, "hidden_act is \"gelu\""},
        Refusal{"Epsilon", {{"rms_norm_eps", 0.0}}, "rms_norm_eps is 0.0"},
        Refusal{"Flag", {{"tie_word_embeddings", 1}}, "tie_word_embeddings is 1"},
        Refusal{"Slices", {{"pretraining_tp", 2}}, "pretraining_tp is 2"},
        Refusal{"Quantised", {{"quantization_config", {{"bits", 4}}}}, "quantization_config is"},
        Refusal{"Unknown", {{"logit_scale", 0.5}}, "logit_scale is 0.5"},
        Refusal{"Dropout", {{"attention_dropout", 0.1}}, "attention_dropout is 0.1"},
        Refusal{"RopeKind", scaled({{"type", "xpos"}, {"factor", 2.0}}), "rope_type is \"xpos\""},
        Refusal{"RopePart", {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor is 0.5"},
        Refusal{"RopeParts",
                scaled({{"type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1, 2}}}),
                "short_factor is [1,2]; a list of 8 numbers"},
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
