#include "model/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

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
  std::vector<Projection> named(const std::vector<std::string>& targets) const {
    return match_targets(targets, config_.projections());
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
  EXPECT_THAT(named({"v_proj", "q_proj"}), ElementsAre(Projection::kQ, Projection::kV));
  EXPECT_THAT(named({"mlp.up_proj"}), ElementsAre(Projection::kUp));
  EXPECT_EQ(named({"all-linear"}).size(), 7u);
  for (const char* wrong : {"proj", "lm_head", "query", "", "_proj"}) {
    EXPECT_THAT(error_text([&] {
                  named({"q_proj", wrong});
                }),
                AllOf(HasSubstr("matches no layer"), HasSubstr("gate_proj")))
        << wrong;
  }
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
  EXPECT_EQ((LoraConfig{.rank = 4, .alpha = 8}).scale(), 2.0f);
  EXPECT_EQ((LoraConfig{.rank = 4, .alpha = 8, .rslora = true}).scale(), 4.0f);
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
  EXPECT_THAT(loaded.lora().targets, ElementsAre("q_proj", "up_proj"));
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
  json spelled_out = json::array();
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    for (const Projection p : named(names)) spelled_out.push_back(module_name(layer, p));
  }
  place({{"target_modules", spelled_out}});
  EXPECT_EQ(named(load().lora().targets), named(names));
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

TEST_F(AdapterTest, RefusesWhatWouldChangeTheResult) {
  EXPECT_THAT(refusal({{"use_dora", true}}), HasSubstr("use_dora is true"));
  EXPECT_THAT(refusal({{"lora_bias", true}}), HasSubstr("lora_bias is true"));
  EXPECT_THAT(refusal({{"modules_to_save", {"lm_head"}}}), HasSubstr("modules_to_save is"));
  EXPECT_THAT(refusal({{"layers_to_transform", {0, 1}}}), HasSubstr("layers_to_transform is"));
  EXPECT_THAT(refusal({{"rank_pattern", {{"q_proj", 2}}}}), HasSubstr("rank_pattern is"));
  EXPECT_THAT(refusal({{"bias", "all"}}), HasSubstr("bias is \"all\""));
  EXPECT_THAT(refusal({{"peft_type", "IA3"}}), HasSubstr("peft_type is \"IA3\""));
  EXPECT_THAT(refusal({{"init_lora_weights", "pissa"}}), HasSubstr("init_lora_weights is"));
  EXPECT_THAT(refusal({{"kasa_config", {{"beta", 1}}}}), HasSubstr("kasa_config is"));
  EXPECT_THAT(refusal({{"target_modules", "q_.*"}}), HasSubstr("target_modules is"));
  EXPECT_THAT(refusal({{"r", 0}}), HasSubstr("r is 0"));
  EXPECT_THAT(refusal({{"r", "3"}}), HasSubstr("r is \"3\""));
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
