#include "model/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "io/checkpoint_source.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/testing.h"

namespace wgrad::model::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AdapterTest : public ::testing::Test {
 protected:
  Adapter create(const LoraConfig& lora, uint64_t seed = 0) {
    return Adapter::create(ctx_, config_, lora, seed);
  }
  Adapter load() { return Adapter::load(ctx_, config_, folder_.path()); }
  std::vector<float> values(const Adapter& adapter, const std::string& name) {
    return ctx_.read<float>(adapter.parameters().find(name)->value);
  }
  /// Copies the golden adapter with changes in its config.
  void place(const json& changes = json::object()) {
    const std::filesystem::path golden = data_folder() / "llama3" / "adapter";
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
      std::filesystem::copy_file(golden / file, folder_.path() / file,
                                 std::filesystem::copy_options::overwrite_existing);
    }
    json config = io::read_json_file(golden / "adapter_config.json");
    config.update(changes);
    std::ofstream(folder_.path() / "adapter_config.json") << config;
  }
  std::vector<std::string> named(const LoraConfig& lora,
                                 Unmatched unmatched = Unmatched::kRefuse) const {
    std::vector<std::string> names;
    for (const AdaptedModule& module : adapted_modules(config_, lora, unmatched)) {
      names.push_back(module.name);
    }
    return names;
  }
  std::string refusal(const json& changes) {
    place(changes);
    return error_text([&] { load(); });
  }

  Context& ctx_ = context(Device::kCpu);
  ModelConfig config_ = read_config(data_folder() / "llama3");
  TemporaryFolder folder_;
};

TEST_F(AdapterTest, StartsWithAUniformAndBZero) {
  const Adapter adapter = create({.rank = 8});
  const std::vector<float> a =
      values(adapter, "model.layers.1.mlp.down_proj.lora_A.weight");  // 8 x 44
  const double bound = 1.0 / std::sqrt(44.0);
  double sum = 0, square = 0;
  for (const float x : a) {
    EXPECT_LE(std::abs(x), bound);
    sum += x;
    square += static_cast<double>(x) * x;
  }
  // 352 uniform values: mean 0 and mean square bound^2 / 3, within 5 standard errors.
  const double n = static_cast<double>(a.size());
  EXPECT_LE(std::abs(sum / n), 5 * bound / std::sqrt(3 * n));
  EXPECT_NEAR(square / n, bound * bound / 3, 5 * bound * bound * std::sqrt(4.0 / 45 / n));
  EXPECT_EQ(largest(values(adapter, "model.layers.1.mlp.down_proj.lora_B.weight")), 0.0);
}

TEST_F(AdapterTest, AMatrixDependsOnSeedAndPlaceAlone) {
  const std::string name = "model.layers.2.self_attn.v_proj.lora_A.weight";
  const auto of = [&](const LoraConfig& lora, uint64_t seed) {
    return values(create(lora, seed), name);
  };
  const auto first = of({.rank = 4}, 1);
  EXPECT_EQ(of({.rank = 4, .targets = {"v_proj"}}, 1), first);
  EXPECT_NE(of({.rank = 4}, 2), first);
  const Adapter adapter = create({.rank = 4}, 1);
  EXPECT_NE(values(adapter, "model.layers.1.self_attn.v_proj.lora_A.weight"), first);
  EXPECT_NE(values(adapter, "model.layers.2.self_attn.k_proj.lora_A.weight"), first);
}

TEST_F(AdapterTest, TargetsMatchWholeNames) {
  config_.layers = 1;
  const std::string block = "model.layers.0.";
  EXPECT_THAT(named({.targets = {"v_proj", "q_proj"}}),
              ElementsAre(block + "self_attn.q_proj", block + "self_attn.v_proj"));
  EXPECT_THAT(named({.targets = {"mlp.up_proj"}}), ElementsAre(block + "mlp.up_proj"));
  EXPECT_THAT(named({.targets = {"lm_head", "embed_tokens", block + "mlp.up_proj"}}),
              ElementsAre("model.embed_tokens", block + "mlp.up_proj", "lm_head"));
  EXPECT_EQ(named({.targets = {"all-linear"}}).size(), 7u);
  EXPECT_EQ(named({.targets = {"all-linear", "lm_head"}}).size(), 8u);
  for (const char* wrong : {"proj", "norm", "query", "", "_proj", "self_attn"}) {
    EXPECT_THAT(error_text([&] {
                  named({.targets = {"q_proj", wrong}});
                }),
                AllOf(HasSubstr("matches no layer"), HasSubstr("gate_proj")))
        << wrong;
    EXPECT_EQ(named({.targets = {"q_proj", wrong}}, Unmatched::kIgnore).size(), 1u) << wrong;
  }
}

TEST_F(AdapterTest, AnExpressionMatchesWholeNames) {
  LoraConfig lora;
  lora.target_pattern = R"(.*\.[02]\.(?:mlp\.up|self_attn\.q)_proj)";
  EXPECT_THAT(named(lora),
              ElementsAre("model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj",
                          "model.layers.2.self_attn.q_proj", "model.layers.2.mlp.up_proj"));
  lora.exclude_pattern = ".*layers.0.*";
  EXPECT_EQ(named(lora).size(), 2u);
  lora.target_pattern = "q_proj";
  EXPECT_THAT(error_text([&] { named(lora); }), HasSubstr("\"q_proj\" matches no layer"));
  lora.target_pattern = "(?!q_proj).*";
  EXPECT_THAT(error_text([&] { named(lora); }), HasSubstr("look-around"));
}

TEST_F(AdapterTest, LeavesOutModulesAndBlocks) {
  LoraConfig lora = {.targets = {"q_proj", "model.layers.0.mlp.up_proj"}};
  lora.layers = {1};
  // As in PEFT, a full name is taken whatever its block.
  EXPECT_THAT(named(lora),
              ElementsAre("model.layers.0.mlp.up_proj", "model.layers.1.self_attn.q_proj"));
  lora.layer_lists = {"h"};
  EXPECT_THAT(named(lora, Unmatched::kIgnore), ElementsAre("model.layers.0.mlp.up_proj"));
  lora.layer_lists = {"layers"};
  EXPECT_EQ(named(lora).size(), 2u);
  lora.layers = {3};
  EXPECT_THAT(error_text([&] { named({.targets = {"up_proj"}, .layers = {3}}); }),
              HasSubstr("matches no layer"));
  lora = {.targets = {"q_proj", "up_proj"}, .exclude = {"1.self_attn.q_proj", "up_proj"}};
  EXPECT_THAT(named(lora, Unmatched::kIgnore),
              ElementsAre("model.layers.0.self_attn.q_proj", "model.layers.2.self_attn.q_proj"));
  lora = {.targets = {"q_proj", "up_proj"}, .modules_to_save = {"mlp"}};
  EXPECT_EQ(named(lora, Unmatched::kIgnore).size(), 3u);
}

TEST_F(AdapterTest, RanksAndAlphasGoByTheEndsOfNames) {
  LoraConfig lora = {.rank = 4, .alpha = 8, .targets = {"q_proj", "up_proj"}};
  lora.rank_pattern = {{"q_proj", 2}, {"layers.[01].mlp.up_proj", 5}};
  lora.alpha_pattern = {{"1.mlp.up_proj", 20}};
  const std::vector<AdaptedModule> modules = adapted_modules(config_, lora, Unmatched::kRefuse);
  ASSERT_EQ(modules.size(), 6u);
  EXPECT_EQ(modules[0].rank, 2);
  EXPECT_EQ(modules[0].scale, 4.0f);
  EXPECT_EQ(modules[3].rank, 5);
  EXPECT_EQ(modules[3].scale, 4.0f);
  EXPECT_EQ(modules[5].rank, 4);
  EXPECT_EQ(modules[5].scale, 2.0f);
  lora.rank_pattern = {{"proj", 2}};
  EXPECT_THAT(error_text([&] { named(lora); }), HasSubstr("\"proj\" matches no adapted module"));
  lora.rank_pattern = {{"up_proj", 2}, {"mlp.up_proj", 3}};
  EXPECT_THAT(
      error_text([&] { named(lora); }),
      AllOf(HasSubstr("\"mlp.up_proj\" and \"up_proj\" both match model.layers.0.mlp.up_proj")));
  lora.rank_pattern = {{"up_proj", 0}};
  EXPECT_THAT(error_text([&] { named(lora); }), HasSubstr("rank: 0"));
}

TEST_F(AdapterTest, SavesModulesByTheEndsOfTheirNames) {
  const auto saved = [&](const std::vector<std::string>& names) {
    std::vector<std::string> tensors;
    const LoraConfig lora = {.targets = {"q_proj", "o_proj"}, .modules_to_save = names};
    for (const Parameters::Spec& spec : saved_tensors(config_, lora, Unmatched::kRefuse)) {
      tensors.push_back(spec.name);
    }
    return tensors;
  };
  config_.layers = 1;
  EXPECT_THAT(saved({"embed_tokens", "lm_head"}),
              ElementsAre("model.embed_tokens.weight", "lm_head.weight"));
  EXPECT_THAT(saved({"norm"}),
              ElementsAre("model.layers.0.input_layernorm.weight",
                          "model.layers.0.post_attention_layernorm.weight", "model.norm.weight"));
  EXPECT_EQ(saved({"mlp"}).size(), 3u);
  EXPECT_EQ(saved({"self_attn.q_proj", "layernorm"}).size(), 3u);
  EXPECT_THAT(error_text([&] { saved({"lm_heads"}); }),
              HasSubstr("\"lm_heads\" matches no module"));
  EXPECT_THAT(error_text([&] { saved({"_proj"}); }),
              HasSubstr("model.layers.0.self_attn.q_proj is adapted too"));
}

TEST_F(AdapterTest, RefusesDoraOnTheEmbedding) {
  LoraConfig lora = {.targets = {"embed_tokens"}, .dora = true};
  EXPECT_THAT(error_text([&] { named(lora); }), HasSubstr("dora: embed_tokens is adapted"));
}

TEST_F(AdapterTest, DoraBeginsWithTheLengthsOfTheWeightsRows) {
  const Model model = load_model(ctx_, data_folder() / "llama3", {});
  const Adapter adapter =
      Adapter::create(ctx_, model, {.rank = 2, .targets = {"k_proj"}, .dora = true}, 1);
  const std::string module = "model.layers.2.self_attn.k_proj";
  const std::vector<float> lengths = values(adapter, module + ".lora_magnitude_vector");
  const std::vector<float> weight =
      Golden(data_folder() / "llama3" / "model.safetensors").values(module + ".weight");
  ASSERT_EQ(lengths.size(), 16u);
  for (size_t r = 0; r < lengths.size(); ++r) {
    double squares = 0;
    for (size_t i = 0; i < 32; ++i) squares += std::pow(static_cast<double>(weight[32 * r + i]), 2);
    EXPECT_NEAR(lengths[r], std::sqrt(squares), 1e-6);
  }
}

TEST_F(AdapterTest, AnEmbeddingBeginsWithAZeroAndBNormal) {
  const Adapter adapter = create({.rank = 8, .targets = {"embed_tokens", "lm_head"}}, 3);
  EXPECT_EQ(largest(values(adapter, "model.embed_tokens.lora_embedding_A")), 0.0);
  EXPECT_EQ(largest(values(adapter, "lm_head.lora_B.weight")), 0.0);
  double sum = 0, square = 0;
  const std::vector<float> b = values(adapter, "model.embed_tokens.lora_embedding_B");  // 32 x 8
  for (const float x : b) {
    sum += x;
    square += static_cast<double>(x) * x;
  }
  // 256 normal values: mean 0 and mean square 1, within 5 standard errors.
  EXPECT_LE(std::abs(sum / 256), 5 / 16.0);
  EXPECT_NEAR(square / 256, 1.0, 5 * std::sqrt(2.0 / 256));
}

TEST_F(AdapterTest, RefusesARankThatDoesNotFit) {
  EXPECT_THAT(error_text([&] { create({.rank = 0}); }), HasSubstr("rank: 0; at least 1"));
  EXPECT_THAT(error_text([&] { create({.rank = -4}); }), HasSubstr("rank: -4"));
  // k and v are 16 x 32.
  EXPECT_THAT(error_text([&] { create({.rank = 17}); }),
              AllOf(HasSubstr("rank: 17"), HasSubstr("at most 16"), HasSubstr("k_proj")));
  EXPECT_NO_THROW(create({.rank = 16}));
  EXPECT_NO_THROW(create({.rank = 17, .targets = {"q_proj"}}));
}

TEST_F(AdapterTest, RefusesSettingsOutOfRange) {
  EXPECT_THAT(error_text([&] { create({.alpha = 0}); }), HasSubstr("alpha: 0"));
  EXPECT_THAT(error_text([&] { create({.dropout = 1.0}); }), HasSubstr("dropout: 1"));
}

TEST_F(AdapterTest, ScalesByRankOrItsRoot) {
  EXPECT_EQ(lora_scale(4, 8, false), 2.0f);
  EXPECT_EQ(lora_scale(4, 8, true), 4.0f);
}

TEST_F(AdapterTest, SavedAndLoadedIsTheSame) {
  const LoraConfig lora = {.rank = 5,
                           .alpha = 2.5,
                           .dropout = 0.25,
                           .rslora = true,
                           .targets = {"q_proj", "mlp.up_proj"}};
  const Adapter adapter = create(lora, 3);
  adapter.save(ctx_, folder_.path(), "some/base");
  const Adapter loaded = load();
  EXPECT_EQ(loaded.lora().rank, 5);
  EXPECT_EQ(loaded.lora().alpha, 2.5);
  EXPECT_EQ(loaded.lora().dropout, 0.25);
  EXPECT_TRUE(loaded.lora().rslora);
  EXPECT_THAT(loaded.lora().targets, ElementsAre("q_proj", "mlp.up_proj"));
  for (const Parameter& p : adapter.parameters().parameters()) {
    EXPECT_EQ(values(loaded, p.name), ctx_.read<float>(p.value)) << p.name;
  }
  const json config = io::read_json_file(folder_.path() / "adapter_config.json");
  EXPECT_EQ(config.at("base_model_name_or_path"), "some/base");
  EXPECT_EQ(config.at("peft_type"), "LORA");
  EXPECT_EQ(config.at("task_type"), "CAUSAL_LM");
}

TEST_F(AdapterTest, ReadsAllLinearAsPeftSpellsItOut) {
  place();
  const json given = io::read_json_file(folder_.path() / "adapter_config.json")["target_modules"];
  const auto names = given.get<std::vector<std::string>>();
  const std::vector<std::string> all = named({.targets = names});
  place({{"target_modules", all}});
  EXPECT_EQ(named(load().lora()), all);
  EXPECT_THAT(refusal({{"target_modules", {"model.layers.q_proj"}}}),
              HasSubstr("matches no layer"));
}

TEST_F(AdapterTest, WritesTheKeysAndShapesThatPeftWrites) {
  place();
  const Adapter golden = load();
  TemporaryFolder mine;
  golden.save(ctx_, mine.path(), "tiny");
  const auto theirs = io::open_safetensors(folder_.path() / "adapter_model.safetensors");
  const auto ours = io::open_safetensors(mine.path() / "adapter_model.safetensors");
  EXPECT_EQ(ours->names(), theirs->names());
  for (const std::string& name : theirs->names()) {
    EXPECT_EQ(ours->get(name).shape, theirs->get(name).shape) << name;
  }
  // PEFT fills in what its version knows beyond these.
  const json written = io::read_json_file(mine.path() / "adapter_config.json");
  const json reference = io::read_json_file(folder_.path() / "adapter_config.json");
  for (const auto& [key, value] : written.items()) {
    ASSERT_TRUE(reference.contains(key)) << key;
    if (key == "target_modules") continue;
    EXPECT_EQ(value, reference.at(key)) << key;
  }
}

TEST_F(AdapterTest, EverySettingIsWrittenAndReadBack) {
  const Model model = load_model(ctx_, data_folder() / "llama3", {});
  LoraConfig lora = {.rank = 3, .alpha = 4.5, .targets = {"all-linear", "lm_head"}, .dora = true};
  lora.exclude = {"0.mlp.up_proj"};
  lora.layers = {0, 2};
  lora.layer_lists = {"layers"};
  lora.rank_pattern = {{"q_proj", 2}};
  lora.alpha_pattern = {{"v_proj", 8}, {"q_proj", 0.5}};
  lora.modules_to_save = {"norm"};
  const Adapter adapter = Adapter::create(ctx_, model, lora, 3);
  adapter.save(ctx_, folder_.path(), "base");
  const Adapter loaded = load();
  EXPECT_EQ(named(loaded.lora()), named(lora));
  EXPECT_EQ(loaded.lora().exclude, lora.exclude);
  EXPECT_EQ(loaded.lora().layers, lora.layers);
  EXPECT_EQ(loaded.lora().layer_lists, lora.layer_lists);
  EXPECT_EQ(loaded.lora().rank_pattern, lora.rank_pattern);
  EXPECT_EQ(loaded.lora().alpha_pattern, lora.alpha_pattern);
  EXPECT_EQ(loaded.lora().modules_to_save, lora.modules_to_save);
  EXPECT_TRUE(loaded.lora().dora);
  for (const Parameter& p : adapter.parameters().parameters()) {
    EXPECT_EQ(values(loaded, p.name), ctx_.read<float>(p.value)) << p.name;
  }
  LoraConfig by_pattern = {.rank = 2};
  by_pattern.target_pattern = "lm_head|.*embed_tokens";
  by_pattern.exclude_pattern = "lm.*";
  create(by_pattern).save(ctx_, folder_.path(), "base");
  EXPECT_EQ(load().lora().target_pattern, by_pattern.target_pattern);
  EXPECT_EQ(load().lora().exclude_pattern, by_pattern.exclude_pattern);
  EXPECT_THAT(named(load().lora()), ElementsAre("model.embed_tokens"));
}

TEST_F(AdapterTest, RefusesWhatWouldChangeTheResult) {
  EXPECT_THAT(refusal({{"lora_bias", true}}), HasSubstr("lora_bias is true"));
  EXPECT_THAT(refusal({{"fan_in_fan_out", true}}), HasSubstr("fan_in_fan_out is true"));
  EXPECT_THAT(refusal({{"use_qalora", true}}), HasSubstr("use_qalora is true"));
  EXPECT_THAT(refusal({{"megatron_config", {{"a", 1}}}}), HasSubstr("megatron_config is"));
  EXPECT_THAT(refusal({{"trainable_token_indices", {1}}}), HasSubstr("trainable_token_indices is"));
  EXPECT_THAT(refusal({{"target_parameters", {"x"}}}), HasSubstr("target_parameters is"));
  EXPECT_THAT(refusal({{"bias", "all"}}), HasSubstr("bias is \"all\""));
  EXPECT_THAT(refusal({{"peft_type", "IA3"}}), HasSubstr("peft_type is \"IA3\""));
  for (const char* init : {"pissa", "olora", "corda", "loftq", "lora_ga", "pissa_niter_4"}) {
    EXPECT_THAT(refusal({{"init_lora_weights", init}}), HasSubstr("init_lora_weights is"));
  }
  EXPECT_THAT(refusal({{"ensure_weight_tying", true}, {"target_modules", {"lm_head"}}}),
              HasSubstr("ensure_weight_tying is true"));
  EXPECT_THAT(refusal({{"kasa_config", {{"beta", 1}}}}), HasSubstr("kasa_config is"));
  EXPECT_THAT(refusal({{"r", 0}}), HasSubstr("r is 0"));
  EXPECT_THAT(refusal({{"r", "3"}}), HasSubstr("r is \"3\""));
}

TEST_F(AdapterTest, RefusesSettingsOfTheWrongForm) {
  EXPECT_THAT(refusal({{"target_modules", "q_.*"}}), HasSubstr("\"q_.*\" matches no layer"));
  EXPECT_THAT(refusal({{"target_modules", {1}}}), HasSubstr("target_modules is [1]"));
  EXPECT_THAT(refusal({{"target_modules", nullptr}}), HasSubstr("target_modules names nothing"));
  EXPECT_THAT(refusal({{"exclude_modules", 3}}), HasSubstr("exclude_modules is 3"));
  EXPECT_THAT(refusal({{"layers_to_transform", {-1}}}), HasSubstr("layers_to_transform is [-1]"));
  EXPECT_THAT(refusal({{"layers_to_transform", 1}, {"target_modules", ".*q_proj"}}),
              HasSubstr("where target_modules is a regular expression"));
  EXPECT_THAT(refusal({{"layers_pattern", "layers"}}), HasSubstr("without layers_to_transform"));
  EXPECT_THAT(refusal({{"rank_pattern", {{"q_proj", 0}}}}), HasSubstr("rank_pattern is"));
  EXPECT_THAT(refusal({{"alpha_pattern", {{"q_proj", "2"}}}}), HasSubstr("alpha_pattern is"));
  EXPECT_THAT(refusal({{"rank_pattern", {{"(", 2}}}}), HasSubstr("rank_pattern"));
  EXPECT_THAT(refusal({{"modules_to_save", {{"a", 1}}}}), HasSubstr("modules_to_save is"));
}

TEST_F(AdapterTest, ReadsWhatChangesNoResult) {
  for (const char* init : {"gaussian", "eva", "orthogonal"}) {
    place({{"init_lora_weights", init}, {"init_config_of_later", nullptr}});
    EXPECT_NO_THROW(load()) << init;
  }
  place({{"inference_mode", false}, {"ensure_weight_tying", true}, {"task_type", nullptr}});
  EXPECT_NO_THROW(load());
}

TEST_F(AdapterTest, AStoredBaseWeightMustBeTheModels) {
  const auto base = io::open_hf_folder(data_folder() / "llama3");
  create({.rank = 2, .targets = {"lm_head"}}).save(ctx_, folder_.path(), "base");
  const std::filesystem::path file = folder_.path() / "adapter_model.safetensors";
  const auto add_base = [&](float error) {
    const Golden mine(file);
    std::vector<io::TensorToWrite> tensors;
    const auto add = [&](const std::string& name, Shape shape, std::vector<float> x) {
      tensors.push_back({name, io::FileType::kF32, std::move(shape), [x](const io::ByteSink& sink) {
                           sink(std::as_bytes(std::span<const float>(x)));
                         }});
    };
    const std::string module = "base_model.model.lm_head.";
    add(module + "lora_A.weight", {2, 32}, mine.values(module + "lora_A.weight"));
    add(module + "lora_B.weight", {149, 2}, mine.values(module + "lora_B.weight"));
    std::vector<float> table(149 * 32);
    base->read_f32("model.embed_tokens.weight", table);
    table[77] += error;
    add(module + "base_layer.weight", {149, 32}, table);
    io::write_safetensors(file, std::move(tensors));
  };
  add_base(0.0f);
  EXPECT_NO_THROW(Adapter::load(ctx_, config_, folder_.path(), base.get()));
  add_base(0.25f);
  EXPECT_THAT(error_text([&] { Adapter::load(ctx_, config_, folder_.path(), base.get()); }),
              HasSubstr("differs from the model's"));
}

TEST_F(AdapterTest, NamesTheTensorOfAnotherModel) {
  place();
  const auto other = [&](const char* model) {
    config_ = read_config(data_folder() / model);
    return error_text([&] { load(); });
  };
  EXPECT_THAT(other("qwen3"), AllOf(HasSubstr("adapter_model.safetensors"),
                                    HasSubstr("base_model.model.model.layers"),
                                    HasSubstr("the model that it was trained on")));
  EXPECT_THAT(other("qwen2_window"), HasSubstr("[44, 3]; [37, 3]"));
}

TEST_F(AdapterTest, NamesWhatIsMissingAndWhatIsTooMuch) {
  EXPECT_THAT(refusal({{"target_modules", {"q_proj"}}}),
              AllOf(HasSubstr("unexpected tensor"), HasSubstr("layers.0")));
  const Adapter part = create({.rank = 3, .targets = {"q_proj"}});
  TemporaryFolder mine;
  part.save(ctx_, mine.path(), "x");
  place();
  std::filesystem::copy_file(mine.path() / "adapter_model.safetensors",
                             folder_.path() / "adapter_model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(error_text([&] { load(); }), HasSubstr("k_proj.lora_A.weight is missing"));
  EXPECT_THAT(refusal({{"r", 2}}), AllOf(HasSubstr("[3, 32]"), HasSubstr("[2, 32]")));
}

TEST_F(AdapterTest, BelievesNoRankThatTheFileDoesNotHave) {
  EXPECT_THAT(refusal({{"r", 1 << 20}}), AllOf(HasSubstr("[3, 32]"), HasSubstr("[1048576, 32]")));
}

TEST_F(AdapterTest, NamesAMissingFolder) {
  EXPECT_THAT(error_text([&] { Adapter::load(ctx_, config_, folder_.path() / "nowhere"); }),
              HasSubstr("nowhere"));
  EXPECT_THAT(error_text([&] { load(); }), HasSubstr("adapter_config.json"));
}

TEST(ParametersTest, ViewsAreAlignedAndMatricesComeFirst) {
  Context& ctx = context(Device::kCpu);
  const Parameters parameters(ctx, {{"a", {3}}, {"b", {5, 7}}, {"c", {65}}, {"d", {2, 2}}}, "test");
  ASSERT_EQ(parameters.groups().size(), 2u);
  EXPECT_TRUE(parameters.groups()[0].decay);
  EXPECT_FALSE(parameters.groups()[1].decay);
  EXPECT_EQ(parameters.groups()[0].size(), 64 + 64);
  EXPECT_EQ(parameters.groups()[1].size(), 64 + 128);
  EXPECT_EQ(parameters.count(), 3 + 35 + 65 + 4);
  for (const Parameter& p : parameters.parameters()) {
    EXPECT_EQ(p.value.byte_offset() % 256, 0) << p.name;
    EXPECT_EQ(p.grad.byte_offset(), p.value.byte_offset()) << p.name;
  }
  EXPECT_EQ(parameters[1].name, "b");
  EXPECT_EQ(parameters[1].value.shape(), (Shape{5, 7}));
}

TEST(ParametersTest, GroupsKeepWithinTheLargestBuffer) {
  const auto plan = Context::plan(DeviceKind::kGpu, {.max_buffer_size = 1024}, {}, {});
  const Parameters parameters(*plan, {{"a", {10, 10}}, {"b", {9, 9}}, {"c", {4, 4}}, {"d", {7}}},
                              "test");
  // 128 elements each for a and b, 64 for c: a and b fill 256 elements = 1024 bytes.
  ASSERT_EQ(parameters.groups().size(), 3u);
  EXPECT_EQ(parameters.groups()[0].size(), 256);
  EXPECT_EQ(parameters.groups()[1].size(), 64);
  EXPECT_EQ(parameters.groups()[2].size(), 64);
  EXPECT_EQ(parameters.gradients().size(), 3u);
}

}  // namespace
}  // namespace wgrad::model::testing
