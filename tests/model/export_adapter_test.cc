#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "io/gguf.h"
#include "io/gguf_names.h"
#include "model/export_testing.h"

namespace wgrad::model::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(ExportTest, WritesAnAdapterAlone) {
  const fs::path base = make_base("llama3");
  const fs::path adapter = make_adapter(base);
  export_adapter_gguf(base, adapter, GgufType::kKeep, out_);
  const io::GgufFile file = io::GgufFile::open(out_);
  EXPECT_EQ(file.string("general.architecture"), "llama");
  EXPECT_EQ(file.string("general.type"), "adapter");
  EXPECT_EQ(file.string("adapter.type"), "lora");
  EXPECT_EQ(file.number("adapter.lora.alpha"), 400.0);
  const Golden stored(adapter / "adapter_model.safetensors");
  const ModelConfig config = read_config(base);
  EXPECT_EQ(file.tensors().size(), stored.names().size());
  for (const io::TensorView& tensor : file.tensors()) {
    const bool is_b = tensor.name.ends_with(".lora_b");
    ASSERT_TRUE(is_b || tensor.name.ends_with(".lora_a")) << tensor.name;
    std::string module = *io::hf_tensor_name(tensor.name.substr(0, tensor.name.size() - 7));
    module.resize(module.size() - std::string(".weight").size());
    const std::vector<float> expected =
        stored.values("base_model.model." + module + (is_b ? ".lora_B.weight" : ".lora_A.weight"));
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    io::to_f32(tensor.type, tensor.bytes, values);
    const bool rotated = is_b && (module.ends_with("q_proj") || module.ends_with("k_proj"));
    for (int64_t row = 0; row < tensor.rows(); ++row) {
      const int64_t from = rotated ? io::half_split_row(row, config.head_dim) : row;
      for (int64_t c = 0; c < tensor.row_size(); ++c) {
        ASSERT_EQ(values[static_cast<size_t>(row * tensor.row_size() + c)],
                  expected[static_cast<size_t>(from * tensor.row_size() + c)])
            << tensor.name;
      }
    }
  }
}

TEST_F(ExportTest, AnAdaptersAlphaMakesUpForRankStabilisedScaling) {
  const fs::path base = data_folder() / "qwen3";
  const fs::path adapter = data_folder() / "runs" / "rslora_qwen3" / "adapter";
  const LoraConfig lora = read_lora_config(adapter);
  ASSERT_TRUE(lora.rslora);
  export_adapter_gguf(base, adapter, GgufType::kF16, out_);
  EXPECT_NEAR(*io::GgufFile::open(out_).number("adapter.lora.alpha"),
              lora.alpha * std::sqrt(static_cast<double>(lora.rank)), 1e-5 * lora.alpha);
}

TEST_F(ExportTest, NamesAnAdaptersMatricesByTheArchitecture) {
  const fs::path base = data_folder() / "phi3";
  export_adapter_gguf(base, base / "adapter", GgufType::kKeep, out_);
  const io::GgufFile file = io::GgufFile::open(out_);
  EXPECT_EQ(file.string("general.architecture"), "phi3");
  for (const char* module : {"attn_qkv", "attn_output", "ffn_up", "ffn_down"}) {
    EXPECT_NE(file.find_tensor("blk.1." + std::string(module) + ".weight.lora_a"), nullptr);
  }
  EXPECT_EQ(file.tensors().size(), 16u);
}

// A reader multiplies B A by alpha / rank, with the one alpha of the file and the rank that B has.
TEST_F(ExportTest, AnAdaptersMatricesMakeUpForPatternsOfRankAndAlpha) {
  const fs::path base = data_folder() / "qwen3";
  const fs::path adapter = data_folder() / "runs" / "patterns_qwen3" / "adapter";
  Context& ctx = context(Device::kCpu);
  const Adapter loaded = Adapter::load(ctx, read_config(base), adapter);
  ASSERT_FALSE(loaded.lora().rank_pattern.empty() && loaded.lora().alpha_pattern.empty());
  export_adapter_gguf(base, adapter, GgufType::kKeep, out_);
  const io::GgufFile file = io::GgufFile::open(out_);
  const double alpha = *file.number("adapter.lora.alpha");
  for (size_t i = 0; i < loaded.modules().size(); ++i) {
    const AdaptedModule& module = loaded.modules()[i];
    const std::string name = *io::gguf_tensor_name(module.name + ".weight", "qwen3");
    const io::TensorView& b = *file.find_tensor(name + ".lora_b");
    ASSERT_EQ(b.row_size(), module.rank) << name;
    std::vector<float> values(static_cast<size_t>(b.elements()));
    io::to_f32(b.type, b.bytes, values);
    const std::vector<float> expected = ctx.read<float>(loaded.module_pair(i).b->value);
    const double scale = alpha / static_cast<double>(b.row_size());
    for (size_t k = 0; k < values.size(); ++k) {
      EXPECT_NEAR(scale * values[k], module.scale * expected[k],
                  1e-6 * std::abs(module.scale * expected[k]))
          << name;
    }
  }
}

TEST_F(ExportTest, RefusesAdaptersThatTheFormHasNoPlaceFor) {
  const auto refusal = [&](const std::string& model, const fs::path& adapter, GgufType type) {
    return error_text([&] { export_adapter_gguf(data_folder() / model, adapter, type, out_); });
  };
  const auto run = [](const std::string& name) {
    return data_folder() / "runs" / name / "adapter";
  };
  constexpr auto kKeep = GgufType::kKeep;
  EXPECT_THAT(refusal("qwen2", run("dora_qwen2"), kKeep), HasSubstr("DoRA"));
  EXPECT_THAT(refusal("mistral", run("saved_mistral"), kKeep),
              HasSubstr("modules that are trained whole"));
  EXPECT_THAT(refusal("llama2", run("embeddings_llama2"), kKeep),
              HasSubstr("an adapted embedding"));
  EXPECT_THAT(refusal("qwen2", data_folder() / "qwen2" / "adapter", GgufType::kQ4_0),
              HasSubstr("f32, f16, bf16 or q8_0 for an adapter alone"));
  Context& ctx = context(Device::kCpu);
  const LoraConfig head = {.rank = 2, .targets = {"lm_head"}};
  const fs::path saved = folder_.path() / "head";
  fs::create_directory(saved);
  const ModelConfig config = read_config(data_folder() / "smollm2");
  Adapter::create(ctx, config, head, 1).save(ctx, saved, "smollm2");
  EXPECT_THAT(refusal("smollm2", saved, kKeep), HasSubstr("an adapted output layer that is tied"));
  EXPECT_FALSE(fs::exists(out_));
}

}  // namespace
}  // namespace wgrad::model::testing
