#include "model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "io/half.h"
#include "io/safetensors.h"
#include "model/testing.h"

namespace wgrad::model::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// A golden model, written anew with changes to its tensors.
class LoadTest : public ::testing::Test {
 protected:
  struct Tensors {
    std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> all;
  };

  LoadTest() {
    const auto source = io::open_hf_folder(golden_);
    for (const std::string& name : source->names()) {
      const io::TensorView& view = source->get(name);
      std::vector<float> values(static_cast<size_t>(view.elements()));
      source->read_f32(name, values);
      tensors_.all[name] = {view.shape, std::move(values)};
    }
    fs::copy_file(golden_ / "config.json", folder_.path() / "config.json");
  }

  void write(io::FileType type = io::FileType::kF32) {
    std::vector<io::TensorToWrite> out;
    for (const auto& [name, tensor] : tensors_.all) {
      const std::vector<float>& values = tensor.second;
      out.push_back({name, type, tensor.first, [type, &values](const io::ByteSink& sink) {
                       if (type == io::FileType::kF32) {
                         return sink(std::as_bytes(std::span(values)));
                       }
                       std::vector<uint16_t> half;
                       for (const float x : values) half.push_back(io::f32_to_bf16(x));
                       sink(std::as_bytes(std::span(half)));
                     }});
    }
    io::write_safetensors(folder_.path() / "model.safetensors", std::move(out));
  }
  Model load(const LoadOptions& options = {}) { return load_model(ctx_, folder_.path(), options); }
  std::string refusal() {
    write();
    return error_text([&] { load(); });
  }

  fs::path golden_ = data_folder() / "llama2";
  Context& ctx_ = context(Device::kCpu);
  TemporaryFolder folder_;
  Tensors tensors_;
};

TEST_F(LoadTest, F32WeightsStayWhereTheyAreMapped) {
  write();
  const int64_t before = ctx_.live_bytes();
  const Model model = load();
  const int64_t norms = (2 * model.config.layers + 1) * 512;  // 36 floats, and the pool's rounding
  EXPECT_LE(ctx_.live_bytes() - before, norms);
  EXPECT_EQ(ctx_.read<float>(model.layers[1][Projection::kUp].weight.data),
            tensors_.all["model.layers.1.mlp.up_proj.weight"].second);
}

TEST_F(LoadTest, ReadsBfloat16) {
  write(io::FileType::kBF16);
  const Model model = load();
  std::vector<float> expected = tensors_.all["lm_head.weight"].second;
  for (float& x : expected) x = io::bf16_to_f32(io::f32_to_bf16(x));
  EXPECT_EQ(ctx_.read<float>(model.output.data), expected);
}

TEST_F(LoadTest, TrainableWeightsAreCopiesInFlatBuffers) {
  write();
  const Model model = load({.trainable = true});
  EXPECT_EQ(model.parameters.count(), model.config.parameters());
  for (const auto& [name, tensor] : tensors_.all) {
    const Parameter* parameter = model.parameters.find(name);
    ASSERT_NE(parameter, nullptr) << name;
    EXPECT_EQ(ctx_.read<float>(parameter->value), tensor.second) << name;
  }
  EXPECT_TRUE(model.layers[0][Projection::kQ].grad_weight);
  EXPECT_TRUE(model.final_norm.grad);
}

TEST_F(LoadTest, NamesAMissingTensor) {
  tensors_.all.erase("model.layers.1.self_attn.k_proj.weight");
  EXPECT_THAT(refusal(), AllOf(HasSubstr(folder_.path().string()),
                               HasSubstr("model.layers.1.self_attn.k_proj.weight")));
}

TEST_F(LoadTest, NamesATensorThatTheConfigDoesNotCallFor) {
  tensors_.all["model.layers.0.self_attn.q_proj.bias"] = {{36}, std::vector<float>(36)};
  EXPECT_THAT(refusal(), HasSubstr("unknown tensor model.layers.0.self_attn.q_proj.bias"));
}

TEST_F(LoadTest, NamesBothShapes) {
  tensors_.all["model.norm.weight"] = {{35}, std::vector<float>(35)};
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("model.norm.weight"), HasSubstr("[35]"), HasSubstr("[36]")));
}

TEST_F(LoadTest, IgnoresRotaryBuffers) {
  tensors_.all["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{9}, std::vector<float>(9)};
  write();
  EXPECT_NO_THROW(load());
}

TEST_F(LoadTest, Nf4ReplacesTheBlocksWeightsAlone) {
  write();
  const Model model = load({.precision = ops::WeightPrecision::kNF4});
  EXPECT_EQ(model.layers[0][Projection::kDown].weight.format, ops::WeightFormat::kNF4);
  EXPECT_EQ(model.embedding.format, ops::WeightFormat::kF32);
  EXPECT_EQ(model.output.format, ops::WeightFormat::kF32);
  // Each of 64 values lies within half the widest gap of the code, 0.152 of the block's largest.
  const std::vector<float> values =
      ctx_.read<float>(ops::weight_to_f32(ctx_, model.layers[0][Projection::kDown].weight));
  const std::vector<float>& expected = tensors_.all["model.layers.0.mlp.down_proj.weight"].second;
  EXPECT_LE(difference(values, expected), 0.153 * largest(expected));
}

TEST(GgufTest, IsTheModelThatItWasMadeFrom) {
  Context& ctx = context(Device::kCpu);
  const Model model = load_model(ctx, data_folder() / "llama3.gguf", {});
  const Model original = load_model(ctx, data_folder() / "llama3", {});
  const std::vector<double> frequencies = rope_inverse_frequencies(original.config.ropes[0], 1);
  const std::vector<double> read = rope_inverse_frequencies(model.config.ropes[0], 1);
  // The file holds the scaling as f32 divisors.
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(read[i], frequencies[i], 1e-5 * frequencies[i]);
  EXPECT_TRUE(model.config.tied_embeddings);
  for (const Projection p : kProducts) {
    const std::vector<float> expected = ctx.read<float>(original.layers[2][p].weight.data);
    // Q8_0: half a step of 1/127 of the block's largest value, and the step rounded to a half.
    EXPECT_LE(difference(ctx.read<float>(model.layers[2][p].weight.data), expected),
              largest(expected) * (0.5 / 127 + 0x1p-11))
        << projection_name(p);
  }
}

TEST(PlanTest, APlanCountsTheMemoryOfARealRun) {
  const fs::path folder = data_folder() / "qwen3";
  const GoldenRows rows(Golden(folder / "expected.safetensors"));
  const auto peak = [&](Context& ctx) {
    const Model model = load_model(ctx, folder, {});
    const Adapter adapter = Adapter::create(ctx, model.config, {.rank = 4, .dropout = 0.1}, 0);
    Decoder decoder(ctx, model, &adapter, {});
    const Batch batch = make_batch(ctx, rows.rows(), model.config.vocab_size);
    const Tensor loss_sum = ctx.allocate_zeroed({1}, DType::kF32, "loss");
    decoder.forward_backward(batch, 1.0f, {}, loss_sum);
    return ctx.peak_bytes();
  };
  const auto plan = Context::plan(DeviceKind::kCpu, {}, {}, {});
  const auto cpu = Context::cpu({});
  EXPECT_EQ(peak(*plan), peak(*cpu));
}

}  // namespace
}  // namespace wgrad::model::testing
