#include "train/synthetic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>

#include "io/json.h"
#include "model/model.h"
#include "wgrad/error.h"

namespace wgrad::train {
namespace {

uint64_t splitmix(uint64_t z) {
  z += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

class RandomWeights : public io::TensorSource {
 public:
  explicit RandomWeights(const model::ModelConfig& config) {
    for (const model::Parameters::Spec& spec : model::checkpoint_tensors(config)) {
      io::TensorView view;
      view.name = spec.name;
      view.shape = spec.shape;
      view.where = "random weights: tensor " + spec.name;
      view.in_order = false;
      views_.emplace(spec.name, std::move(view));
    }
  }

  std::string where() const override { return "random weights"; }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, view] : views_) names.push_back(name);
    return names;
  }
  const io::TensorView* find(std::string_view name) const override {
    const auto found = views_.find(name);
    return found == views_.end() ? nullptr : &found->second;
  }
  void read_bytes(const io::TensorView& tensor, int64_t, int64_t,
                  std::span<std::byte>) const override {
    throw runtime_failure(tensor.where, "has no stored bytes", "read it as f32");
  }
  void read_f32(const io::TensorView& tensor, int64_t begin, int64_t,
                std::span<float> out) const override {
    if (tensor.shape.size() == 1) {
      std::fill(out.begin(), out.end(), 1.0f);
      return;
    }
    const uint64_t seed = std::hash<std::string>()(tensor.name);
    const uint64_t first = static_cast<uint64_t>(begin * tensor.row_size());
    for (size_t i = 0; i < out.size(); ++i) {
      // The sum of four uniform 16-bit numbers is near enough to normal here.
      const uint64_t bits = splitmix(seed ^ (first + i));
      const double sum = static_cast<double>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                             (bits >> 32 & 0xFFFF) + (bits >> 48));
      out[i] = static_cast<float>((sum / 65536.0 - 2.0) * std::numbers::sqrt3 * 0.02);
    }
  }
  void release(const io::TensorView&) const override {}

 private:
  std::map<std::string, io::TensorView, std::less<>> views_;
};

}  // namespace

const std::vector<ModelShape>& model_shapes() {
  static const std::vector<ModelShape> shapes = {
      {"smollm2-135m", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
        "max_position_embeddings": 8192, "rope_theta": 100000.0, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "tie_word_embeddings": true})"},
      {"llama-3.2-1b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
        "vocab_size": 128256, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true})"},
      {"gemma-2-2b", R"({"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2",
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "vocab_size": 256000, "max_position_embeddings": 8192, "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 256, "sliding_window": 4096, "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0, "tie_word_embeddings": true})"},
      {"qwen3-4b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
        "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 151936, "max_position_embeddings": 40960, "rope_theta": 1000000.0,
        "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": true})"},
      {"llama-3.1-8b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "max_position_embeddings": 131072, "rope_theta": 500000.0, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "tie_word_embeddings": false})"},
  };
  return shapes;
}

std::string_view shape_json(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ModelShape& shape : model_shapes()) {
    if (shape.name == name) return shape.config_json;
    names.push_back(shape.name);
  }
  throw input_error("--shape", fmt::format("\"{}\"", name),
                    fmt::format("expected one of {}", fmt::join(names, ", ")),
                    "give one of these names");
}

model::ModelConfig shape_config(std::string_view name) {
  return model::parse_config(io::parse_json(shape_json(name), {.where = name}), name);
}

std::unique_ptr<io::TensorSource> random_weights(const model::ModelConfig& config) {
  return std::make_unique<RandomWeights>(config);
}

std::vector<data::Row> random_rows(int64_t rows, int64_t tokens, int64_t vocab_size) {
  std::vector<data::Row> out(static_cast<size_t>(rows));
  uint64_t state = 0;
  for (data::Row& row : out) {
    row.ids.resize(static_cast<size_t>(tokens));
    row.counted.assign(static_cast<size_t>(tokens), 1);
    for (uint32_t& id : row.ids) {
      id = static_cast<uint32_t>(splitmix(state++) % static_cast<uint64_t>(vocab_size));
    }
  }
  return out;
}

}  // namespace wgrad::train
