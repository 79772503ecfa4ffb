#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "io/json.h"
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/export.h"
#include "model/testing.h"

namespace wgrad::model::testing {

namespace fs = std::filesystem;

inline std::vector<float> read(const io::TensorSource& source, const std::string& name) {
  std::vector<float> values(static_cast<size_t>(source.get(name).elements()));
  source.read_f32(name, values);
  return values;
}

inline std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.25f);
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
    config.update(changes);
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

}  // namespace wgrad::model::testing
