// A text model that is one of several in its class (Gemma 3 with vision); what it computes is in
// decoder_test.cc.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/json.h"
#include "model/merge.h"
#include "model/testing.h"
#include "text/pattern.h"

namespace wgrad::model::testing {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class CompositeTest : public ::testing::Test {
 protected:
  std::vector<float> logits(const fs::path& path, const Adapter* adapter = nullptr) {
    const Model model = load_model(ctx_, path, {});
    const std::vector<uint32_t> ids = {5, 9, 30, 7, 12, 44, 3, 21};
    const std::vector<Row> rows = {{ids, {}}};
    const Batch batch = make_batch(ctx_, rows, model.config.vocab_size);
    return ctx_.read<float>(Decoder(ctx_, model, adapter, {}).logits(batch));
  }
  fs::path copy() {
    const fs::path to = folder_.path() / "copy";
    fs::create_directory(to);
    for (const char* name : {"config.json", "model.safetensors"}) {
      fs::copy_file(base_ / name, to / name);
    }
    return to;
  }
  std::string refusal(const json& changes) {
    json config = io::read_json_file(base_ / "config.json");
    config.merge_patch(changes);
    return error_text([&] { parse_config(config, "config.json"); });
  }

  Context& ctx_ = context(Device::kCpu);
  const fs::path base_ = data_folder() / "gemma3_whole";
  const ModelConfig config_ = read_config(base_);
  TemporaryFolder folder_;
};

TEST_F(CompositeTest, IsItsTextModelUnderTheNamesOfTransformers) {
  EXPECT_EQ(config_.model_type, "gemma3_text");
  EXPECT_EQ(config_.layers, 2);
  EXPECT_TRUE(config_.tied_embeddings);
  EXPECT_EQ(config_.module_name(1, Projection::kQ),
            "model.language_model.layers.1.self_attn.q_proj");
  EXPECT_THAT(config_.note_on_parts(), HasSubstr("vision_tower and multi_modal_projector"));
}

TEST_F(CompositeTest, ItsTensorsMayHaveTheNamesOfTheirModules) {
  const fs::path renamed = copy();
  const fs::path file = renamed / "model.safetensors";
  const std::string bytes = read_bytes(file);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  json header = json::object();
  size_t vision = 0;
  const json stored = json::parse(bytes.substr(8, length));
  for (const auto& [name, tensor] : stored.items()) {
    std::string module = io::module_name_of(name);
    if (module.starts_with("vision_tower.")) module = "model." + module, ++vision;
    header[module] = tensor;
  }
  EXPECT_GT(vision, 10u);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::ofstream(file, std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&size), sizeof size) << text
      << bytes.substr(8 + length);
  EXPECT_EQ(logits(renamed), logits(base_));
}

TEST_F(CompositeTest, AnAdapterSaysNothingOfTheOtherParts) {
  const LoraConfig lora = {.rank = 2,
                           .targets = {"q_proj", "up_proj"},
                           .exclude = {"1.mlp.up_proj"},
                           .modules_to_save = {"norm", "0.mlp.down_proj"}};
  const Model model = load_model(ctx_, base_, {});
  const Adapter adapter = Adapter::create(ctx_, model, lora, 1);
  adapter.save(ctx_, folder_.path(), "tiny");
  EXPECT_THAT(io::open_safetensors(folder_.path() / "adapter_model.safetensors")->names(),
              Contains("base_model.model.model.language_model.layers.0.mlp.up_proj.lora_A.weight"));
  const json written = io::read_json_file(folder_.path() / "adapter_config.json");
  EXPECT_EQ(written.at("target_modules"), json({"q_proj", "up_proj"}));
  const text::Pattern excluded(written.at("exclude_modules").get<std::string>(), "exclude_modules");
  for (const char* name : {"model.vision_tower.encoder.layers.0.self_attn.q_proj",
                           "vision_tower.encoder.layers.0.self_attn.q_proj",
                           "model.language_model.layers.1.mlp.up_proj"}) {
    EXPECT_TRUE(excluded.matches(name)) << name;
  }
  EXPECT_FALSE(excluded.matches("model.language_model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(excluded.matches("model.language_model.layers.1.self_attn.q_proj"));
  const auto saved = written.at("modules_to_save").get<std::vector<std::string>>();
  EXPECT_THAT(saved, Contains("model.language_model.norm"));
  EXPECT_THAT(saved, Contains("model.language_model.layers.0.self_attn.q_norm"));
  EXPECT_THAT(saved, Contains("model.language_model.layers.0.mlp.down_proj"));

  const Adapter read = Adapter::load(ctx_, config_, folder_.path());
  EXPECT_EQ(read.parameters().parameters().size(), adapter.parameters().parameters().size());
  const TemporaryFolder again;
  read.save(ctx_, again.path(), "tiny");
  EXPECT_EQ(io::read_json_file(again.path() / "adapter_config.json"), written);
}

TEST_F(CompositeTest, AMergedModelKeepsTheOtherParts) {
  const fs::path out = folder_.path() / "out";
  merge_adapter(base_, base_ / "adapter", out);
  const Golden before(base_ / "model.safetensors"), after(out / "model.safetensors");
  EXPECT_EQ(after.names(), before.names());
  size_t same = 0;
  for (const std::string& name : before.names()) same += after.values(name) == before.values(name);
  EXPECT_EQ(before.names().size() - same, 2 * 7u);
  const Adapter adapter = Adapter::load(ctx_, config_, base_ / "adapter");
  const std::vector<float> expected = logits(base_, &adapter);
  EXPECT_GT(difference(expected, logits(base_)), 1e-2 * largest(expected));
  // Sums of up to 60 f32 terms in another order.
  EXPECT_LE(difference(expected, logits(out)), 1e-5 * largest(expected));
}

TEST_F(CompositeTest, AnAdaptedOutputLayerIsUntied) {
  const LoraConfig lora = {.rank = 2, .targets = {"lm_head"}};
  Adapter adapter = Adapter::create(ctx_, config_, lora, 1);
  const Parameter& b = *adapter.module_pair(0).b;
  ctx_.upload<float>(b.value, std::vector<float>(static_cast<size_t>(b.value.size()), 0.25f));
  const fs::path saved = folder_.path() / "adapter", out = folder_.path() / "out";
  fs::create_directory(saved);
  adapter.save(ctx_, saved, "tiny");
  merge_adapter(base_, saved, out);
  EXPECT_FALSE(read_config(out).tied_embeddings);
  const std::vector<float> expected = logits(base_, &adapter);
  EXPECT_GT(difference(expected, logits(base_)), 1e-2 * largest(expected));
  EXPECT_LE(difference(expected, logits(out)), 1e-5 * largest(expected));
}

TEST_F(CompositeTest, ATrainedModelKeepsTheOtherParts) {
  const Model model = load_model(ctx_, base_, {.trainable = true});
  const Tensor norm = model.parameters.find("model.language_model.norm.weight")->value;
  ctx_.upload<float>(norm, std::vector<float>(static_cast<size_t>(norm.size()), 0.5f));
  save_model(ctx_, model, base_, folder_.path());
  const Golden before(base_ / "model.safetensors"), after(folder_.path() / "model.safetensors");
  EXPECT_EQ(after.names(), before.names());
  for (const std::string& name : before.names()) {
    EXPECT_EQ(after.values(name) != before.values(name), name == "model.language_model.norm.weight")
        << name;
  }
  EXPECT_THAT(read_bytes(folder_.path() / "model.safetensors"),
              HasSubstr("\"language_model.model.norm.weight\""));
}

TEST_F(CompositeTest, IsRefusedWhereItIsNotUnderstood) {
  EXPECT_THAT(refusal({{"text_config", 3}}), HasSubstr("text_config is 3"));
  EXPECT_THAT(refusal({{"text_config", {{"model_type", "llama"}}}}), HasSubstr("\"llama\""));
  EXPECT_THAT(refusal({{"text_config", {{"head_dim", 15}}}}),
              HasSubstr("config.json: text_config: the size of a head is 15"));
  EXPECT_THAT(refusal({{"some_switch", 2}}), HasSubstr("some_switch is 2"));
  EXPECT_THAT(refusal({{"quantization_config", {{"bits", 4}}}}), HasSubstr("quantization_config"));
}

}  // namespace
}  // namespace wgrad::model::testing
