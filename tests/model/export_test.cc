#include "model/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <tuple>

#include "io/gguf.h"
#include "io/gguf_names.h"
#include "io/json.h"
#include "io/quantize.h"
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/generate.h"
#include "model/merge.h"
#include "model/testing.h"

namespace wgrad::model::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
namespace fs = std::filesystem;

std::vector<float> read(const io::TensorSource& source, const std::string& name) {
  std::vector<float> values(static_cast<size_t>(source.get(name).elements()));
  source.read_f32(name, values);
  return values;
}

std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.05f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = normal(random);
  return values;
}

class ExportTest : public ::testing::Test {
 protected:
  /// The config of a golden model with a byte-level tokenizer and random weights.
  fs::path make_base(const std::string& model,
                     const nlohmann::json& changes = nlohmann::json::object()) const {
    const fs::path base = folder_.path() / "base";
    fs::create_directory(base);
    nlohmann::json config = io::read_json_file(data_folder() / model / "config.json");
    config["vocab_size"] = 700;
    config["bos_token_id"] = 578;
    config["eos_token_id"] = 579;
    config.merge_patch(changes);
    std::ofstream(base / "config.json") << config;
    const fs::path text = fs::path(WGRAD_TEST_DATA) / "text" / "smollm_style";
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
      fs::copy_file(text / file, base / file);
    }
    std::vector<io::TensorToWrite> tensors;
    for (const Parameters::Spec& spec : checkpoint_tensors(read_config(base))) {
      const auto seed = static_cast<uint32_t>(tensors.size());
      const auto count = static_cast<int64_t>(*io::element_count(spec.shape));
      tensors.push_back(
          {spec.name, io::FileType::kF32, spec.shape, [count, seed](const io::ByteSink& sink) {
             const std::vector<float> values = random_values(count, seed);
             sink(std::as_bytes(std::span(values)));
           }});
    }
    io::write_safetensors(base / "model.safetensors", std::move(tensors));
    return base;
  }

  /// A random adapter for all linear layers of a base.
  fs::path make_adapter(const fs::path& base) const {
    const fs::path saved = folder_.path() / "adapter";
    fs::create_directory(saved);
    Context& ctx = context(Device::kCpu);
    const Adapter adapter = Adapter::create(ctx, read_config(base), {.rank = 4, .alpha = 400}, 1);
    uint32_t seed = 100;
    for (const Parameter& p : adapter.parameters().parameters()) {
      ctx.upload<float>(p.value, random_values(p.value.size(), ++seed));
    }
    adapter.save(ctx, saved, base.string());
    return saved;
  }

  TemporaryFolder folder_;
  const fs::path out_ = folder_.path() / "out.gguf";
};

class ExportedModel : public ExportTest, public ::testing::WithParamInterface<std::string> {};

INSTANTIATE_TEST_SUITE_P(, ExportedModel,
                         ::testing::Values("llama2", "llama3", "llama_bias", "smollm2", "mistral",
                                           "qwen2", "qwen3"),
                         [](const auto& info) { return info.param; });

TEST_P(ExportedModel, IsReadBackAsItWas) {
  const fs::path base = make_base(GetParam());
  export_gguf(base, {}, GgufType::kKeep, out_);
  const ModelConfig config = read_config(base), back = read_config(out_);
  ASSERT_EQ(back.ropes.size(), config.ropes.size());
  const auto frequencies = rope_inverse_frequencies(config.ropes[0], 128);
  const auto frequencies_back = rope_inverse_frequencies(back.ropes[0], 128);
  ASSERT_EQ(frequencies_back.size(), frequencies.size());
  for (size_t i = 0; i < frequencies.size(); ++i) {
    EXPECT_NEAR(frequencies_back[i], frequencies[i], 1e-5 * frequencies[i]);
  }
  const auto shape = [](const ModelConfig& c) {
    return std::tuple(c.model_type, c.vocab_size, c.hidden_size, c.intermediate_size, c.layers,
                      c.heads, c.kv_heads, c.head_dim, c.max_positions, c.rms_norm_eps, c.qkv_bias,
                      c.output_bias, c.mlp_bias, c.qk_norm, c.tied_embeddings, c.windows,
                      c.eos_ids);
  };
  EXPECT_EQ(shape(back), shape(config));
  const auto before = io::open_checkpoint(base), after = io::open_checkpoint(out_);
  EXPECT_EQ(after->names(), before->names());
  for (const std::string& name : before->names()) {
    EXPECT_EQ(read(*after, name), read(*before, name)) << name;
  }
}

TEST_P(ExportedModel, HoldsTheAdapterRoundedOnce) {
  const fs::path base = make_base(GetParam());
  const fs::path adapter = make_adapter(base);
  merge_adapter(base, adapter, folder_.path() / "merged");
  const auto merged = io::open_checkpoint(folder_.path() / "merged");
  export_gguf(base, adapter, GgufType::kF16, out_);
  const auto exported = io::open_checkpoint(out_);
  for (const std::string& name : merged->names()) {
    std::vector<float> expected = read(*merged, name);
    if (merged->get(name).shape.size() > 1) {
      std::vector<std::byte> halves(2 * expected.size());
      io::from_f32(io::FileType::kF16, expected, halves, name);
      io::to_f32(io::FileType::kF16, halves, expected);
    }
    EXPECT_EQ(read(*exported, name), expected) << name;
  }
}

TEST_F(ExportTest, GeneratesWhatBaseAndAdapterDo) {
  const fs::path base = make_base("llama3");
  const fs::path saved = make_adapter(base);
  export_gguf(base, saved, GgufType::kF32, out_);
  Context& ctx = context(Device::kCpu);
  const std::vector<uint32_t> prompt = {5, 17, 300, 8};
  GenerateOptions greedy;
  greedy.temperature = 0;
  greedy.max_tokens = 24;
  const Model model = load_model(ctx, base, {}), exported = load_model(ctx, out_, {});
  const Adapter adapter = Adapter::load(ctx, model.config, saved);
  const auto expected = Generator(ctx, model, &adapter).generate(prompt, greedy);
  EXPECT_EQ(Generator(ctx, exported, nullptr).generate(prompt, greedy), expected);
  EXPECT_NE(Generator(ctx, model, nullptr).generate(prompt, greedy), expected);
}

/// Sizes of whole blocks, and enough layers for the mix of Q4_K.
const nlohmann::json kWideSizes = {{"hidden_size", 256},          {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},    {"head_dim", 64},
                                   {"intermediate_size", 512},    {"num_hidden_layers", 8},
                                   {"tie_word_embeddings", false}};

std::map<std::string, io::FileType> types_of(const fs::path& path) {
  std::map<std::string, io::FileType> types;
  const io::GgufFile file = io::GgufFile::open(path);
  for (const io::TensorView& tensor : file.tensors()) {
    types[tensor.name] = tensor.type;
  }
  return types;
}

TEST_F(ExportTest, QuantisesRowsInTheOrderOfTheFile) {
  const fs::path base = make_base("llama3", kWideSizes);
  const ExportSummary summary = export_gguf(base, {}, GgufType::kQ8_0, out_);
  EXPECT_THAT(summary.notes, IsEmpty());
  EXPECT_EQ(summary.bytes, fs::file_size(out_));
  const auto before = io::open_checkpoint(base), after = io::open_checkpoint(out_);
  for (const std::string& name : before->names()) {
    std::vector<float> expected = read(*before, name);
    if (before->get(name).shape.size() > 1) {
      std::vector<std::byte> blocks(expected.size() / 32 * 34);
      io::from_f32(io::FileType::kQ8_0, expected, blocks, name);
      io::to_f32(io::FileType::kQ8_0, blocks, expected);
    }
    EXPECT_EQ(read(*after, name), expected) << name;
  }
}

TEST_F(ExportTest, MixesTypesAsLlamaQuantizeDoes) {
  const fs::path base = make_base("llama3", kWideSizes);
  export_gguf(base, {}, GgufType::kQ4_K, out_);
  const auto mixed = types_of(out_);
  EXPECT_EQ(io::GgufFile::open(out_).integer("general.file_type"), 15);
  for (const auto& [name, type] : mixed) {
    if (name.find("norm") != std::string::npos || name == "rope_freqs.weight") {
      EXPECT_EQ(type, io::FileType::kF32) << name;
    }
  }
  // Of 8 layers the first, the last and 3 and 6 between get more bits.
  for (int layer = 0; layer < 8; ++layer) {
    const bool more = layer == 0 || layer == 7 || layer == 3 || layer == 6;
    const std::string block = "blk." + std::to_string(layer);
    const auto expected = more ? io::FileType::kQ6_K : io::FileType::kQ4_K;
    EXPECT_EQ(mixed.at(block + ".attn_v.weight"), expected) << layer;
    EXPECT_EQ(mixed.at(block + ".ffn_down.weight"), expected) << layer;
    EXPECT_EQ(mixed.at(block + ".attn_q.weight"), io::FileType::kQ4_K);
    EXPECT_EQ(mixed.at(block + ".ffn_up.weight"), io::FileType::kQ4_K);
  }
  EXPECT_EQ(mixed.at("output.weight"), io::FileType::kQ6_K);
  EXPECT_EQ(mixed.at("token_embd.weight"), io::FileType::kQ4_K);

  fs::remove(out_);
  export_gguf(base, {}, GgufType::kQ4_0, out_);
  EXPECT_EQ(types_of(out_).at("blk.0.attn_v.weight"), io::FileType::kQ4_0);
  EXPECT_EQ(types_of(out_).at("output.weight"), io::FileType::kQ6_K);
}

TEST_F(ExportTest, SaysWhichTensorsFitNoBlocks) {
  nlohmann::json sizes = kWideSizes;
  sizes["intermediate_size"] = 96;
  sizes["num_hidden_layers"] = 2;
  const fs::path base = make_base("qwen2", sizes);
  const ExportSummary summary = export_gguf(base, {}, GgufType::kQ4_K, out_);
  EXPECT_THAT(summary.notes,
              UnorderedElementsAre(HasSubstr("Q5_0 rather than Q4_K, because their rows are no "
                                             "multiple of 256: 1 tensor"),
                                   HasSubstr("Q8_0 rather than Q6_K")));
  fs::remove(out_);
  sizes["intermediate_size"] = 49;
  fs::remove_all(base);
  const ExportSummary odd = export_gguf(make_base("qwen2", sizes), {}, GgufType::kQ8_0, out_);
  EXPECT_THAT(odd.notes,
              UnorderedElementsAre(HasSubstr(
                  "F16 rather than Q8_0, because their rows are no multiple of 32: 2 tensors")));
}

TEST_F(ExportTest, AGgufBaseKeepsItsKeysAndBytes) {
  const fs::path base = data_folder() / "llama3.gguf";
  EXPECT_THAT(export_gguf(base, {}, GgufType::kKeep, out_).notes, IsEmpty());
  const io::GgufFile before = io::GgufFile::open(base), after = io::GgufFile::open(out_);
  for (const std::string& key : before.keys()) {
    ASSERT_NE(after.find(key), nullptr) << key;
    EXPECT_TRUE(std::ranges::equal(after.raw(key), before.raw(key))) << key;
  }
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const io::TensorView& tensor : before.tensors()) {
    const io::TensorView* copy = after.find_tensor(tensor.name);
    ASSERT_NE(copy, nullptr) << tensor.name;
    EXPECT_EQ(copy->type, tensor.type);
    EXPECT_TRUE(std::ranges::equal(copy->bytes, tensor.bytes)) << tensor.name;
  }
}

TEST_F(ExportTest, AnAdapterChangesOnlyItsTensorsOfAGgufBase) {
  const fs::path base = data_folder() / "llama3.gguf";
  const fs::path adapter = make_adapter(base);
  merge_adapter(base, adapter, folder_.path() / "merged");
  const auto merged = io::open_checkpoint(folder_.path() / "merged");
  const ExportSummary summary = export_gguf(base, adapter, GgufType::kKeep, out_);
  ASSERT_EQ(summary.notes.size(), 1u);
  EXPECT_THAT(summary.notes[0], HasSubstr("are quantised again, which can cost"));
  const io::GgufFile before = io::GgufFile::open(base), after = io::GgufFile::open(out_);
  const auto exported = io::open_checkpoint(out_);
  for (const io::TensorView& tensor : before.tensors()) {
    EXPECT_EQ(after.find_tensor(tensor.name)->type, tensor.type) << tensor.name;
    const auto name = io::hf_tensor_name(tensor.name);
    if (!name || tensor.shape.size() < 2) continue;
    std::vector<float> expected = read(*merged, *name);
    // Halves were rounded by the merge, and rows of q and k are whole blocks in any order.
    std::vector<std::byte> stored(*io::tensor_bytes(tensor.type, tensor.shape));
    io::from_f32(tensor.type, expected, stored, *name);
    io::to_f32(tensor.type, stored, expected);
    EXPECT_EQ(read(*exported, *name), expected) << *name;
  }
}

TEST_F(ExportTest, AGgufBaseIsConvertedToATypeThatIsNamed) {
  const fs::path base = data_folder() / "llama3.gguf";
  export_gguf(base, {}, GgufType::kF32, out_);
  for (const auto& [name, type] : types_of(out_)) EXPECT_EQ(type, io::FileType::kF32) << name;
  EXPECT_EQ(io::GgufFile::open(out_).integer("general.file_type"), 0);
  const auto before = io::open_checkpoint(base), after = io::open_checkpoint(out_);
  for (const std::string& name : before->names()) {
    EXPECT_EQ(read(*after, name), read(*before, name)) << name;
  }
}

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

TEST_F(ExportTest, RefusesWhatHasNoForm) {
  const auto refusal = [&](const fs::path& base) {
    return error_text([&] { export_gguf(base, {}, GgufType::kKeep, out_); });
  };
  EXPECT_THAT(refusal(data_folder() / "qwen2_window"), HasSubstr("the model has sliding windows"));
  EXPECT_THAT(refusal(data_folder() / "llama2"), HasSubstr("the tokenizer's model is WordLevel"));
  EXPECT_THAT(refusal(data_folder() / "gemma2"), HasSubstr("models of the type \"gemma2\""));
  EXPECT_THAT(error_text([&] {
                export_adapter_gguf(data_folder() / "qwen2", data_folder() / "qwen2" / "adapter",
                                    GgufType::kQ4_0, out_);
              }),
              HasSubstr("f32, f16, bf16 or q8_0 for an adapter alone"));
  std::ofstream(out_) << "mine";
  EXPECT_THAT(refusal(data_folder() / "llama3.gguf"), HasSubstr("this file exists"));
  EXPECT_EQ(io::read_text_file(out_), "mine");
}

TEST_F(ExportTest, SaysThatLlamaCppIgnoresAWindow) {
  const fs::path base = make_base("mistral");
  const ExportSummary summary = export_gguf(base, {}, GgufType::kKeep, out_);
  ASSERT_EQ(summary.notes.size(), 1u);
  EXPECT_THAT(summary.notes[0], HasSubstr("llama.cpp ignores the sliding window"));
}

}  // namespace
}  // namespace wgrad::model::testing
