#include "model/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/half.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/testing.h"

namespace wgrad::model::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::vector<float> read(const io::TensorSource& source, const std::string& name) {
  std::vector<float> values(static_cast<size_t>(source.get(name).elements()));
  source.read_f32(name, values);
  return values;
}

/// W + scale B A in double.
std::vector<double> merged(const std::vector<float>& w, const Golden& adapter,
                           const std::string& module, int64_t rank, double scale) {
  const std::string prefix = "base_model.model." + module;
  const std::vector<float> a = adapter.values(prefix + ".lora_A.weight");
  const std::vector<float> b = adapter.values(prefix + ".lora_B.weight");
  const size_t in = a.size() / static_cast<size_t>(rank);
  std::vector<double> out(w.begin(), w.end());
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t r = 0; r < static_cast<size_t>(rank); ++r) {
      out[i] += scale * b[i / in * static_cast<size_t>(rank) + r] * a[r * in + i % in];
    }
  }
  return out;
}

class MergeTest : public ::testing::Test {
 protected:
  /// Copies the golden base in bfloat16 as two shards.
  fs::path make_sharded_base() {
    const fs::path folder = folder_.path() / "sharded";
    fs::create_directory(folder);
    for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
      fs::copy_file(base_ / file, folder / file);
    }
    const auto source = io::open_hf_folder(base_);
    nlohmann::json map = nlohmann::json::object();
    std::vector<io::TensorToWrite> shards[2];
    for (const std::string& name : source->names()) {
      const int shard = name.find("layers.1.") == std::string::npos ? 0 : 1;
      map[name] = shard == 0 ? "model-1.safetensors" : "model-2.safetensors";
      shards[shard].push_back({name, io::FileType::kBF16, source->get(name).shape,
                               [&source, name](const io::ByteSink& sink) {
                                 std::vector<uint16_t> half;
                                 for (const float x : read(*source, name)) {
                                   half.push_back(io::f32_to_bf16(x));
                                 }
                                 sink(std::as_bytes(std::span(half)));
                               }});
    }
    io::write_safetensors(folder / "model-1.safetensors", std::move(shards[0]));
    io::write_safetensors(folder / "model-2.safetensors", std::move(shards[1]));
    std::ofstream(folder / "model.safetensors.index.json")
        << nlohmann::json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}};
    return folder;
  }

  const fs::path base_ = data_folder() / "qwen2";
  const fs::path adapter_ = base_ / "adapter";
  TemporaryFolder folder_;
  const fs::path out_ = folder_.path() / "merged";
};

TEST_F(MergeTest, TheMergedModelComputesWhatBaseAndAdapterDo) {
  merge_adapter(base_, adapter_, out_);
  Context& ctx = context(Device::kCpu);
  const Model model = load_model(ctx, out_, {});
  const GoldenRows rows(Golden(base_ / "expected.safetensors"));
  Decoder decoder(ctx, model, nullptr, {});
  const Batch batch = make_batch(ctx, rows.rows(), model.config.vocab_size);
  EXPECT_LE(difference(ctx.read<float>(decoder.logits(batch)),
                       Golden(base_ / "adapter_expected.safetensors").values("logits")),
            1e-4);
}

/// peft computed these logits with the adapter, and with what its merge_and_unload made of it.
class MergeOfRun : public ::testing::TestWithParam<const char*> {};

TEST_P(MergeOfRun, ComputesWhatPeftDoes) {
  const fs::path run = data_folder() / "runs" / GetParam();
  const std::string model_name =
      nlohmann::json::parse(io::read_text_file(run / "run.json")).at("model");
  const fs::path base = data_folder() / model_name;
  const Golden golden(run / "expected.safetensors");
  const std::vector<int32_t> given = golden.integers("ids");
  const std::vector<uint32_t> ids(given.begin(), given.end());
  const std::vector<Row> rows = {{ids, {}}};
  Context& ctx = context(Device::kCpu);
  const auto logits = [&](const Model& model, const Adapter* adapter) {
    const Batch batch = make_batch(ctx, rows, model.config.vocab_size);
    return ctx.read<float>(Decoder(ctx, model, adapter, {}).logits(batch));
  };
  const Model model = load_model(ctx, base, {});
  const Adapter adapter = Adapter::load(ctx, model.config, run / "adapter", model.source.get());
  const std::vector<float> expected = golden.values("logits");
  EXPECT_GT(difference(logits(model, nullptr), expected), 0.1);
  EXPECT_LE(difference(logits(model, &adapter), expected), 1e-4);

  TemporaryFolder folder;
  merge_adapter(base, run / "adapter", folder.path() / "merged");
  const Model merged = load_model(ctx, folder.path() / "merged", {});
  EXPECT_LE(difference(logits(merged, nullptr), expected), 1e-4);
  const std::vector<std::string> names = golden.names();
  if (std::find(names.begin(), names.end(), "merged_logits") != names.end()) {
    EXPECT_LE(difference(logits(merged, nullptr), golden.values("merged_logits")), 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MergeOfRun,
                         ::testing::Values("dora_qwen2", "embeddings_llama2", "dora_head_llama2",
                                           "saved_mistral", "saved_qwen3", "patterns_qwen3",
                                           "layers_llama3"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(MergeTest, GivesATiedOutputLayerThatIsAdaptedATensorOfItsOwn) {
  Context& ctx = context(Device::kCpu);
  const Model model = load_model(ctx, base_, {});
  ASSERT_TRUE(model.config.tied_embeddings);
  const Adapter adapter =
      Adapter::create(ctx, model.config, {.rank = 2, .targets = {"embed_tokens", "lm_head"}}, 1);
  for (const Parameter& p : adapter.parameters().parameters()) {
    std::vector<float> values(static_cast<size_t>(p.value.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(0.1 * std::sin(static_cast<double>(7 * i + p.name.size())));
    }
    ctx.upload<float>(p.value, values);
  }
  const fs::path saved = folder_.path() / "adapter";
  fs::create_directory(saved);
  adapter.save(ctx, saved, "base");
  const std::vector<uint32_t> ids = {1, 5, 9, 2, 30};
  const std::vector<Row> rows = {{ids, {}}};
  const auto logits = [&](const Model& some, const Adapter* with) {
    const Batch batch = make_batch(ctx, rows, some.config.vocab_size);
    return ctx.read<float>(Decoder(ctx, some, with, {}).logits(batch));
  };
  for (const fs::path& base : {base_, make_sharded_base()}) {
    const fs::path out = folder_.path() / ("merged" + base.filename().string());
    merge_adapter(base, saved, out);
    const Model merged = load_model(ctx, out, {});
    EXPECT_FALSE(merged.config.tied_embeddings);
    // The shards are bfloat16.
    const double bound = base == base_ ? 1e-4 : 0.5;
    EXPECT_LE(difference(logits(merged, nullptr), logits(model, &adapter)), bound);
  }
}

TEST_F(MergeTest, CopiesEverythingElseByteForByte) {
  merge_adapter(base_, adapter_, out_);
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(io::read_text_file(out_ / file), io::read_text_file(base_ / file)) << file;
  }
  const auto before = io::open_hf_folder(base_), after = io::open_hf_folder(out_);
  ASSERT_EQ(before->names(), after->names());
  for (const std::string& name : before->names()) {
    const bool adapted = name.find("_proj.weight") != std::string::npos;
    EXPECT_EQ(read(*before, name) == read(*after, name), !adapted) << name;
  }
}

TEST_F(MergeTest, KeepsTypeAndShardsAndRoundsOnce) {
  const fs::path base = make_sharded_base();
  merge_adapter(base, adapter_, out_);
  EXPECT_TRUE(fs::exists(out_ / "model-1.safetensors"));
  EXPECT_TRUE(fs::exists(out_ / "model-2.safetensors"));
  EXPECT_FALSE(fs::exists(out_ / "model.safetensors"));
  const auto before = io::open_hf_folder(base), after = io::open_hf_folder(out_);
  const Golden adapter(adapter_ / "adapter_model.safetensors");
  const std::string module = "model.layers.1.mlp.up_proj";
  const io::TensorView& view = after->get(module + ".weight");
  EXPECT_EQ(view.type, io::FileType::kBF16);
  const std::vector<float> values = read(*after, view.name);
  const std::vector<double> exact = merged(read(*before, view.name), adapter, module, 3, 7.0 / 3.0);
  int wrong = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    // Half a unit in the last place of bfloat16's 8 bits, and f32's own roundings.
    EXPECT_LE(std::abs(values[i] - exact[i]), std::abs(exact[i]) * 0x1p-8 + 1e-6);
    wrong += values[i] != io::bf16_to_f32(io::f32_to_bf16(static_cast<float>(exact[i])));
  }
  // Only a value at the middle between two bfloat16 may round the other way.
  EXPECT_LE(wrong, 1);
}

TEST_F(MergeTest, AGgufFileBecomesAHuggingFaceFolder) {
  const fs::path base = data_folder() / "llama3.gguf";
  Context& ctx = context(Device::kCpu);
  const Model model = load_model(ctx, base, {});
  const Adapter adapter = Adapter::create(ctx, model.config, {.rank = 2, .alpha = 4}, 1);
  for (const Parameter& p : adapter.parameters().parameters()) {
    std::vector<float> values(static_cast<size_t>(p.value.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(0.1 * std::sin(static_cast<double>(7 * i + p.name.size())));
    }
    ctx.upload<float>(p.value, values);
  }
  const fs::path saved = folder_.path() / "adapter";
  fs::create_directory(saved);
  adapter.save(ctx, saved, base.string());
  EXPECT_GT(merge_adapter(base, saved, out_), 0) << "Q8_0";

  const std::vector<uint32_t> ids = {1, 5, 9, 2, 30};
  const std::vector<Row> rows = {{ids, {}}};
  const auto logits = [&](const Model& some, const Adapter* with) {
    const Batch batch = make_batch(ctx, rows, some.config.vocab_size);
    return ctx.read<float>(Decoder(ctx, some, with, {}).logits(batch));
  };
  const Model merged = load_model(ctx, out_, {});
  EXPECT_EQ(merged.config.ropes[0].scaling, model.config.ropes[0].scaling);
  const std::vector<float> expected = logits(model, &adapter);
  EXPECT_GT(difference(expected, logits(model, nullptr)), 1e-2 * largest(expected));
  // The down projections are halves and are rounded to halves again, 2^-11 of each weight; what
  // was in Q8_0 is f32 now.
  EXPECT_LE(difference(expected, logits(merged, nullptr)), 2e-3 * largest(expected));
}

TEST_F(MergeTest, LeavesAnExistingFolderAlone) {
  fs::create_directory(out_);
  std::ofstream(out_ / "mine.txt") << "x";
  EXPECT_THAT(error_text([&] { merge_adapter(base_, adapter_, out_); }), HasSubstr(out_.string()));
  EXPECT_EQ(io::read_text_file(out_ / "mine.txt"), "x");
}

TEST_F(MergeTest, AFailureLeavesNothingBehind) {
  EXPECT_THAT(error_text([&] { merge_adapter(data_folder() / "mistral", adapter_, out_); }),
              HasSubstr("adapter"));
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(MergeTest, SavesATrainedModelAsItWasLoaded) {
  Context& ctx = context(Device::kCpu);
  const Model model = load_model(ctx, base_, {.trainable = true});
  const Parameter* norm = model.parameters.find("model.norm.weight");
  std::vector<float> values = ctx.read<float>(norm->value);
  for (float& x : values) x *= 1.5f;
  ctx.upload<float>(norm->value, values);
  fs::create_directory(out_);
  save_model(ctx, model, base_, out_);
  const auto before = io::open_hf_folder(base_), after = io::open_hf_folder(out_);
  for (const std::string& name : before->names()) {
    EXPECT_EQ(read(*after, name), name == norm->name ? values : read(*before, name)) << name;
  }
  EXPECT_TRUE(fs::exists(out_ / "tokenizer.json"));
}

}  // namespace
}  // namespace wgrad::model::testing
