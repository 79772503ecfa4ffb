#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "io/gguf.h"
#include "io/gguf_names.h"
#include "io/quantize.h"
#include "model/export_testing.h"
#include "model/generate.h"
#include "model/merge.h"

namespace wgrad::model::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

/// What of a golden's config no GGUF file can say, as llama.cpp has it.
json as_llama_cpp_has_it(const std::string& model) {
  if (model == "gemma2" || model == "gemma3") return {{"query_pre_attn_scalar", 24}};
  if (model == "smollm3") {
    return {{"no_rope_layers", nullptr},
            {"layer_types", nullptr},
            {"use_sliding_window", false},
            {"num_hidden_layers", 5}};
  }
  return json::object();
}

class ExportedModel : public ExportTest, public ::testing::WithParamInterface<std::string> {};

INSTANTIATE_TEST_SUITE_P(, ExportedModel,
                         ::testing::Values("gemma2", "gemma3", "granite", "llama2", "llama3",
                                           "llama_bias", "llama_yarn", "mistral", "olmo2", "phi3",
                                           "qwen2", "qwen3", "smollm2", "smollm3"),
                         [](const auto& info) { return info.param; });

void expect_same_ropes(const ModelConfig& back, const ModelConfig& config) {
  EXPECT_EQ(back.layer_ropes, config.layer_ropes);
  ASSERT_EQ(back.ropes.size(), config.ropes.size());
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    EXPECT_EQ(back.ropes[i].rotary_dim, config.ropes[i].rotary_dim);
    EXPECT_NEAR(back.ropes[i].attention_factor, config.ropes[i].attention_factor, 1e-6);
    for (const int64_t length : {4, 128}) {
      const auto expected = rope_inverse_frequencies(config.ropes[i], length);
      const auto frequencies = rope_inverse_frequencies(back.ropes[i], length);
      ASSERT_EQ(frequencies.size(), expected.size());
      for (size_t pair = 0; pair < expected.size(); ++pair) {
        EXPECT_NEAR(frequencies[pair], expected[pair], 1e-5 * expected[pair]);
      }
    }
  }
}

TEST_P(ExportedModel, IsReadBackAsItWas) {
  const fs::path base = make_base(GetParam(), as_llama_cpp_has_it(GetParam()));
  export_gguf(base, {}, GgufType::kKeep, out_);
  const ModelConfig config = read_config(base), back = read_config(out_);
  const auto sizes = [](const ModelConfig& c) {
    return std::tuple(c.model_type, c.vocab_size, c.hidden_size, c.intermediate_size, c.layers,
                      c.heads, c.kv_heads, c.head_dim, c.max_positions, c.windows, c.eos_ids);
  };
  EXPECT_EQ(sizes(back), sizes(config));
  const auto switches = [](const ModelConfig& c) {
    return std::tuple(c.rms_norm_eps, c.norm_offset, c.pre_norms, c.post_norms, c.qk_norm,
                      c.qkv_bias, c.output_bias, c.mlp_bias, c.fused_qkv, c.fused_gate_up,
                      c.tied_embeddings, c.activation, c.embedding_scale, c.residual_scale,
                      c.logits.soft_cap, c.attention_soft_cap, c.attention_scale);
  };
  EXPECT_EQ(switches(back), switches(config));
  EXPECT_FLOAT_EQ(static_cast<float>(back.logits.scale), static_cast<float>(config.logits.scale));
  expect_same_ropes(back, config);
  const auto before = io::open_checkpoint(base), after = io::open_checkpoint(out_);
  EXPECT_EQ(after->names(), before->names());
  for (const std::string& name : before->names()) {
    const std::vector<float> expected = read(*before, name);
    // 1 + w - 1 loses at most a half unit in the last place of 1 + w.
    const bool shifted = config.norm_offset != 0 && name.ends_with("norm.weight");
    EXPECT_LE(difference(read(*after, name), expected),
              shifted ? (1 + largest(expected)) * 0x1p-24 : 0)
        << name;
  }
}

TEST_P(ExportedModel, ComputesWhatItDid) {
  const fs::path base = make_base(GetParam(), as_llama_cpp_has_it(GetParam()));
  export_gguf(base, {}, GgufType::kKeep, out_);
  Context& ctx = context(Device::kCpu);
  const Model model = load_model(ctx, base, {}), exported = load_model(ctx, out_, {});
  std::vector<uint32_t> ids;
  for (uint32_t i = 0; i < 24; ++i) ids.push_back(3 + i * 29 % 500);
  const std::vector<Row> rows = {{ids, {}}, {std::span(ids).first(7), {}}};
  const auto logits = [&](const Model& of) {
    const Batch batch = make_batch(ctx, rows, of.config.vocab_size);
    return ctx.read<float>(Decoder(ctx, of, nullptr, {}).logits(batch));
  };
  const std::vector<float> expected = logits(model);
  EXPECT_LE(difference(logits(exported), expected), 1e-5 * largest(expected));
  GenerateOptions greedy;
  greedy.temperature = 0;
  greedy.max_tokens = 16;
  EXPECT_EQ(Generator(ctx, exported, nullptr).generate(ids, greedy),
            Generator(ctx, model, nullptr).generate(ids, greedy));
}

TEST_P(ExportedModel, HoldsTheAdapterRoundedOnce) {
  const fs::path base = make_base(GetParam(), as_llama_cpp_has_it(GetParam()));
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
    // As in IsReadBackAsItWas.
    const bool shifted = GetParam().starts_with("gemma") && name.ends_with("norm.weight");
    EXPECT_LE(difference(read(*exported, name), expected),
              shifted ? (1 + largest(expected)) * 0x1p-24 : 0)
        << name;
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
const json kWideSizes = {{"hidden_size", 256},          {"num_attention_heads", 4},
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
  json sizes = kWideSizes;
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

TEST_F(ExportTest, RefusesWhatHasNoForm) {
  const auto refusal = [&](const fs::path& base) {
    return error_text([&] { export_gguf(base, {}, GgufType::kKeep, out_); });
  };
  EXPECT_THAT(refusal(data_folder() / "llama2"), HasSubstr("the tokenizer's model is WordLevel"));
  std::ofstream(out_) << "mine";
  EXPECT_THAT(refusal(data_folder() / "llama3.gguf"), HasSubstr("this file exists"));
  EXPECT_EQ(io::read_text_file(out_), "mine");
}

TEST_F(ExportTest, RefusesModelsThatLlamaCppComputesOtherwise) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 2.0}};
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 4.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 32}};
  const std::tuple<const char*, json, const char*> kCases[] = {
      {"qwen2_window", json::object(), "the model has sliding windows"},
      {"gemma2",
       {{"layer_types", json::array({"full_attention", "sliding_attention"})}},
       "windows"},
      {"gemma2", {{"query_pre_attn_scalar", 20}}, "another scale of the attention's scores"},
      {"gemma2", {{"attn_logit_softcapping", nullptr}}, "no soft caps"},
      {"gemma2", {{"tie_word_embeddings", false}}, "an output layer of its own"},
      {"gemma3", {{"rope_parameters", {{"full_attention", yarn}}}}, "another rotary embedding"},
      {"llama_dynamic", json::object(), "another rotary embedding"},
      {"llama_yarn", {{"rope_scaling", yarn}}, "another rotary embedding"},
      {"olmo2", {{"attention_bias", true}}, "a bias of the attention's output"},
      {"olmo2", {{"tie_word_embeddings", true}}, "an output layer that is the embedding"},
      {"qwen2", {{"head_dim", 16}}, "heads of their own size"},
      {"qwen3", {{"attention_bias", true}}, "biases of q, k and v"},
      {"qwen3", {{"rope_parameters", llama3}}, "another rotary embedding"},
      {"smollm3", {{"no_rope_layers", json::array({1, 0, 1, 0, 1})}}, "another rotary embedding"},
      {"smollm3", {{"mlp_bias", true}}, "biases in the MLP"},
  };
  for (const auto& [model, changes, reason] : kCases) {
    json all = as_llama_cpp_has_it(model);
    all.update(changes);
    fs::remove_all(folder_.path() / "base");
    const fs::path base = make_base(model, all);
    EXPECT_THAT(error_text([&] { export_gguf(base, {}, GgufType::kKeep, out_); }),
                HasSubstr(reason))
        << model << changes;
  }
}

TEST_F(ExportTest, SaysWhatLlamaCppComputesOtherwise) {
  const auto notes = [&](const std::string& model) {
    fs::remove_all(folder_.path() / "base");
    fs::remove(out_);
    return export_gguf(make_base(model), {}, GgufType::kKeep, out_).notes;
  };
  const auto window = HasSubstr("llama.cpp ignores the sliding window");
  EXPECT_THAT(notes("mistral"), UnorderedElementsAre(window));
  EXPECT_THAT(notes("phi3"),
              UnorderedElementsAre(window, HasSubstr("where its context is larger than 10")));
  EXPECT_THAT(notes("llama_yarn"), UnorderedElementsAre(HasSubstr("beta_fast")));
}

TEST_F(ExportTest, AdvisesATypeThatKeepsMore) {
  const fs::path base = data_folder() / "llama3.gguf", adapter = make_adapter(base);
  const auto advice = [&](GgufType type) {
    fs::remove(out_);
    std::string all;
    for (const std::string& note : export_gguf(base, adapter, type, out_).notes) all += note + "\n";
    return all;
  };
  EXPECT_THAT(advice(GgufType::kQ4_0), HasSubstr("--type q8_0 or f16 keeps more"));
  EXPECT_THAT(advice(GgufType::kQ8_0), HasSubstr("--type f16 keeps more"));
  EXPECT_THAT(advice(GgufType::kF16), Not(HasSubstr("keeps more")));
}

}  // namespace
}  // namespace wgrad::model::testing
