// What goes beyond the goldens that all models share (decoder_test.cc, generate_test.cc): fused
// layers under their stored names, and each family's GGUF form.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/json.h"
#include "model/merge.h"
#include "model/testing.h"

namespace wgrad::model::testing {
namespace {

using nlohmann::json;
using ::testing::UnorderedElementsAre;
namespace fs = std::filesystem;

std::vector<float> logits(Context& ctx, const Model& model, const Adapter* adapter = nullptr) {
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < 20; ++i) ids.push_back(3 + i * 29 % 47);
  const std::vector<Row> rows = {{ids, {}}, {std::span(ids).first(7), {}}};
  const Batch batch = make_batch(ctx, rows, model.config.vocab_size);
  return ctx.read<float>(Decoder(ctx, model, adapter, {}).logits(batch));
}

class FusedTest : public ::testing::Test {
 protected:
  Context& ctx_ = context(Device::kCpu);
  const fs::path base_ = data_folder() / "phi3";
  TemporaryFolder folder_;
  const fs::path out_ = folder_.path() / "out";
};

TEST_F(FusedTest, AnAdapterIsWrittenUnderPeftsNames) {
  const Adapter golden = Adapter::load(ctx_, read_config(base_), base_ / "adapter");
  fs::create_directory(out_);
  golden.save(ctx_, out_, "tiny");
  const auto theirs = io::open_safetensors(base_ / "adapter" / "adapter_model.safetensors");
  const auto ours = io::open_safetensors(out_ / "adapter_model.safetensors");
  EXPECT_EQ(ours->names(), theirs->names());
  for (const std::string& name : theirs->names()) {
    EXPECT_EQ(ours->get(name).shape, theirs->get(name).shape) << name;
  }
  EXPECT_THAT(io::read_json_file(out_ / "adapter_config.json")
                  .at("target_modules")
                  .get<std::vector<std::string>>(),
              UnorderedElementsAre("qkv_proj", "o_proj", "gate_up_proj", "down_proj"));
}

TEST_F(FusedTest, AMergedModelComputesWhatBaseAndAdapterDo) {
  merge_adapter(base_, base_ / "adapter", out_);
  EXPECT_EQ(io::open_hf_folder(out_)->names(), io::open_hf_folder(base_)->names());
  const Model base = load_model(ctx_, base_, {});
  const Adapter adapter = Adapter::load(ctx_, base.config, base_ / "adapter");
  const std::vector<float> expected = logits(ctx_, base, &adapter);
  EXPECT_GT(difference(expected, logits(ctx_, base)), 1e-2 * largest(expected));
  // Sums of up to 60 f32 terms in another order.
  EXPECT_LE(difference(expected, logits(ctx_, load_model(ctx_, out_, {}))),
            1e-5 * largest(expected));
}

TEST_F(FusedTest, ATrainedModelIsWrittenAsTheCheckpointHasIt) {
  const Model model = load_model(ctx_, base_, {.trainable = true});
  // A change of v alone, the last rows of the fused weight.
  const Tensor v = model.layers[1][Projection::kV].weight.data;
  std::vector<float> changed = ctx_.read<float>(v);
  for (float& x : changed) x *= 1.25f;
  ctx_.upload<float>(v, changed);
  fs::create_directory(out_);
  save_model(ctx_, model, base_, out_);
  const Golden before(base_ / "model.safetensors"), after(out_ / "model.safetensors");
  EXPECT_EQ(before.names(), after.names());
  for (const std::string& name : before.names()) {
    std::vector<float> expected = before.values(name);
    if (name == "model.layers.1.self_attn.qkv_proj.weight") {
      std::copy(changed.begin(), changed.end(),
                expected.end() - static_cast<std::ptrdiff_t>(changed.size()));
    }
    EXPECT_EQ(after.values(name), expected) << name;
  }
}

/// What the file of a model cannot say is set to what llama.cpp holds constant.
json as_gguf_has_it(const std::string& name) {
  json config = io::read_json_file(data_folder() / name / "config.json");
  if (name.starts_with("gemma")) config["query_pre_attn_scalar"] = config["head_dim"];
  if (name == "smollm3") {
    config.erase("no_rope_layers");
    config.erase("layer_types");
    config["use_sliding_window"] = false;
  }
  return config;
}

class GgufFamilyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufFamilyTest, IsTheModelThatItWasMadeFrom) {
  Context& ctx = context(Device::kCpu);
  const std::string name = GetParam();
  const Model read = load_model(ctx, data_folder() / (name + ".gguf"), {});
  const Model original = load_model(ctx, parse_config(as_gguf_has_it(name), name),
                                    io::open_hf_folder(data_folder() / name), {});
  EXPECT_EQ(read.config.windows, original.config.windows);
  EXPECT_EQ(read.config.layer_ropes, original.config.layer_ropes);
  const std::vector<float> expected = logits(ctx, original);
  // Each weight is rounded to f16, 2^-11 of it, and passes through up to 3 blocks.
  EXPECT_LE(difference(logits(ctx, read), expected), 0.01 * largest(expected));
  // Norms are kept in f32; 1 + w - 1 loses at most a half unit in the last place of 1 + w.
  for (const NormSpec& norm : read.config.norms()) {
    const std::vector<float> weight = ctx.read<float>(original.layers[1][norm.kind].weight);
    EXPECT_LE(difference(ctx.read<float>(read.layers[1][norm.kind].weight), weight),
              read.config.norm_offset == 0 ? 0 : (1 + largest(weight)) * 0x1p-24)
        << norm.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GgufFamilyTest,
                         ::testing::Values("gemma2", "gemma3", "granite", "olmo2", "phi3",
                                           "smollm3"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(FusedTest, AGgufFileBecomesAHuggingFaceFolder) {
  for (const char* name : {"phi3", "gemma3"}) {
    const fs::path base = data_folder() / (std::string(name) + ".gguf");
    const fs::path out = folder_.path() / name;
    merge_adapter(base, data_folder() / name / "adapter", out);
    const Model model = load_model(ctx_, base, {});
    const Adapter adapter = Adapter::load(ctx_, model.config, data_folder() / name / "adapter");
    const std::vector<float> expected = logits(ctx_, model, &adapter);
    // Merged into halves: 2^-11 of each weight.
    EXPECT_LE(difference(logits(ctx_, load_model(ctx_, out, {})), expected),
              0.01 * largest(expected))
        << name;
  }
}

}  // namespace
}  // namespace wgrad::model::testing
