#include "io/gguf_names.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "gguf_builder.h"
#include "io/safetensors.h"

namespace wgrad::io {
namespace {

using nlohmann::json;

std::unique_ptr<TensorSource> tiny_llama() { return open_checkpoint(test_data("llama.gguf")); }

std::vector<float> reference_values(const TensorView& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  to_f32(tensor.type, tensor.bytes, values);
  return values;
}

TEST(GgufNames, AreThoseOfHuggingFace) {
  EXPECT_EQ(hf_tensor_name("token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(hf_tensor_name("output.weight"), "lm_head.weight");
  EXPECT_EQ(hf_tensor_name("output_norm.weight"), "model.norm.weight");
  EXPECT_EQ(hf_tensor_name("blk.0.attn_q.bias"), "model.layers.0.self_attn.q_proj.bias");
  EXPECT_EQ(hf_tensor_name("blk.127.attn_k_norm.weight"),
            "model.layers.127.self_attn.k_norm.weight");
  EXPECT_EQ(hf_tensor_name("blk.3.ffn_down.weight"), "model.layers.3.mlp.down_proj.weight");
  for (const std::string_view unknown :
       {"", "output", "rope_freqs.weight", "blk.weight", "blk..attn_q.weight",
        "blk.x.attn_q.weight", "blk.-1.attn_q.weight", "blk.01.attn_q.weight", "blk.1.attn_q.scale",
        "blk.1.weight", "blk.99999999999999999999.attn_q.weight", "blk.0.ffn_gate_inp.weight"}) {
    EXPECT_FALSE(hf_tensor_name(unknown)) << unknown;
  }
}

TEST(GgufNames, FollowTheArchitecture) {
  EXPECT_EQ(hf_tensor_name("blk.0.ffn_up.weight"), "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(hf_tensor_name("blk.0.ffn_up.weight", "phi3"),
            "model.layers.0.mlp.gate_up_proj.weight");
  EXPECT_EQ(hf_tensor_name("blk.0.attn_qkv.weight", "phi3"),
            "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_FALSE(hf_tensor_name("blk.0.attn_qkv.weight", "llama"));
  EXPECT_EQ(hf_tensor_name("blk.0.ffn_norm.weight"),
            "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(hf_tensor_name("blk.0.ffn_norm.weight", "gemma3"),
            "model.layers.0.pre_feedforward_layernorm.weight");
  EXPECT_EQ(hf_tensor_name("blk.0.post_ffw_norm.weight", "olmo2"),
            "model.layers.0.post_feedforward_layernorm.weight");
}

TEST(GgufSource, GivesTheWeightsInHuggingFaceOrder) {
  const auto source = tiny_llama();
  const SafetensorsFile reference = SafetensorsFile::open(test_data("llama.safetensors"));
  ASSERT_EQ(source->names().size(), reference.tensors().size());
  for (const TensorView& expected : reference.tensors()) {
    const TensorView& tensor = source->get(expected.name, expected.shape);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    source->read_f32(tensor, 0, tensor.rows(), values);
    EXPECT_EQ(values, reference_values(expected)) << expected.name;
    const bool reordered = expected.name.find("q_proj") != std::string::npos ||
                           expected.name.find("k_proj") != std::string::npos;
    EXPECT_EQ(tensor.in_order, !reordered) << expected.name;
  }
}

TEST(GgufSource, ReordersRowRangesAndBytes) {
  const auto source = tiny_llama();
  const SafetensorsFile reference = SafetensorsFile::open(test_data("llama.safetensors"));
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  const TensorView& q = source->get(name);
  const std::vector<float> expected = reference_values(*reference.find(name));
  const std::int64_t columns = q.row_size();
  for (std::int64_t begin = 0; begin < q.rows(); begin += 5) {
    const std::int64_t end = std::min(q.rows(), begin + 7);
    std::vector<float> rows(static_cast<std::size_t>((end - begin) * columns));
    source->read_f32(q, begin, end, rows);
    std::vector<std::byte> bytes(static_cast<std::size_t>(end - begin) * q.row_bytes());
    source->read_bytes(q, begin, end, bytes);
    std::vector<float> from_bytes(rows.size());
    to_f32(q.type, bytes, from_bytes);
    const std::vector<float> want(expected.begin() + begin * columns,
                                  expected.begin() + end * columns);
    EXPECT_EQ(rows, want) << begin;
    EXPECT_EQ(from_bytes, want) << begin;
  }
}

TEST(GgufSource, ReordersTheBytesOfABias) {
  const auto source = tiny_llama();
  const SafetensorsFile reference = SafetensorsFile::open(test_data("llama.safetensors"));
  for (const std::string name :
       {"model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.k_proj.bias",
        "model.layers.0.self_attn.v_proj.bias"}) {
    const TensorView& bias = source->get(name);
    std::vector<std::byte> bytes(bias.bytes.size());
    source->read_bytes(bias, 0, 1, bytes);
    EXPECT_EQ(std::memcmp(bytes.data(), reference.find(name)->bytes.data(), bytes.size()), 0)
        << name;
  }
}

// Metadata of a small model of the family.
GgufBuilder small_model(const std::string& arch) {
  GgufBuilder builder;
  builder.text("general.architecture", arch)
      .number(arch + ".block_count", 1)
      .number(arch + ".context_length", 512)
      .number(arch + ".embedding_length", 32)
      .number(arch + ".feed_forward_length", 48)
      .number(arch + ".attention.head_count", 4)
      .number(arch + ".attention.head_count_kv", 2)
      .fraction(arch + ".attention.layer_norm_rms_epsilon", 1e-6f)
      .zeros("token_embd.weight", {32, 10});
  return builder;
}

json config_of(const GgufBuilder& builder) {
  const TemporaryFolder folder;
  return gguf_config_json(GgufFile::open(folder.file("m.gguf", builder.bytes())));
}

std::unique_ptr<TensorSource> source_of(const GgufBuilder& builder) {
  const TemporaryFolder folder;
  return open_checkpoint(folder.file("m.gguf", builder.bytes()));
}

TEST(GgufSource, KeepsTheRowsOfArchitecturesThatAreNotReordered) {
  for (const std::string arch : {"qwen2", "qwen3"}) {
    const auto source = source_of(small_model(arch).zeros("blk.0.attn_q.weight", {32, 32}));
    EXPECT_TRUE(source->get("model.layers.0.self_attn.q_proj.weight").in_order);
  }
}

TEST(GgufSource, RefusesTensorsItCannotPlace) {
  expect_input_error({"tensor blk.0.ffn_gate_inp.weight: this tensor is not known here"}, [] {
    source_of(small_model("llama").zeros("blk.0.ffn_gate_inp.weight", {32, 4}));
  });
  expect_input_error({"tensor blk.0.attn_q.weight", "[30, 32] does not divide into the heads"}, [] {
    source_of(small_model("llama").zeros("blk.0.attn_q.weight", {32, 30}));
  });
  expect_input_error({"one of 3 parts", "llama-gguf-split --merge"},
                     [] { source_of(small_model("llama").number("split.count", 3)); });
}

TEST(GgufConfig, DescribesTheTinyLlama) {
  const json config = gguf_config_json(GgufFile::open(test_data("llama.gguf")));
  const json expected = {
      {"architectures", {"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"hidden_size", 64},
      {"intermediate_size", 96},
      {"num_hidden_layers", 2},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 2},
      {"head_dim", 16},
      {"max_position_embeddings", 2048},
      {"vocab_size", 40},
      {"rms_norm_eps", 1e-5},
      {"rope_theta", 500000.0},
      {"rope_scaling",
       {{"rope_type", "llama3"},
        {"factor", 8.0},
        {"low_freq_factor", 1.0},
        {"high_freq_factor", 4.0},
        {"original_max_position_embeddings", 256}}},
      {"hidden_act", "silu"},
      {"tie_word_embeddings", true},
      {"attention_bias", true},
      {"mlp_bias", false},
      {"bos_token_id", 1},
      {"eos_token_id", 2},
  };
  EXPECT_EQ(config, expected) << config.dump(1);
}

TEST(GgufConfig, KnowsTheQwenFamiliesAndMistral) {
  json config = config_of(
      small_model("qwen2").zeros("output.weight", {32, 10}).zeros("blk.0.attn_q.bias", {32}));
  EXPECT_EQ(config["architectures"], json({"Qwen2ForCausalLM"}));
  EXPECT_EQ(config["tie_word_embeddings"], false);
  EXPECT_EQ(config["attention_bias"], true);
  EXPECT_EQ(config["head_dim"], 8);
  EXPECT_EQ(config["rope_theta"], 10000.0);
  EXPECT_EQ(config["rms_norm_eps"], 1e-6);
  config = config_of(small_model("qwen3").number("qwen3.attention.key_length", 16));
  EXPECT_EQ(config["model_type"], "qwen3");
  EXPECT_EQ(config["head_dim"], 16);
  config = config_of(small_model("llama").number("llama.attention.sliding_window", 64));
  EXPECT_EQ(config["model_type"], "mistral");
  EXPECT_EQ(config["sliding_window"], 64);
  EXPECT_FALSE(config.contains("rope_scaling"));
}

TEST(GgufConfig, ReadsRopeScaling) {
  json config = config_of(small_model("qwen2")
                              .text("qwen2.rope.scaling.type", "yarn")
                              .fraction("qwen2.rope.scaling.factor", 4)
                              .number("qwen2.rope.scaling.original_context_length", 128));
  EXPECT_EQ(
      config["rope_scaling"],
      (json{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}}));
  config = config_of(small_model("llama")
                         .text("llama.rope.scaling.type", "linear")
                         .fraction("llama.rope.scaling.factor", 2.5f));
  EXPECT_EQ(config["rope_scaling"], (json{{"rope_type", "linear"}, {"factor", 2.5}}));
  config = config_of(small_model("llama").number("llama.rope.dimension_count", 4));
  EXPECT_EQ(config["partial_rotary_factor"], 0.5);
  expect_input_error({"the rope scaling is \"longrope\""}, [] {
    config_of(small_model("llama")
                  .text("llama.rope.scaling.type", "longrope")
                  .fraction("llama.rope.scaling.factor", 2));
  });
}

// A model with head size 32 (so 16 rotated pairs) and these divisors.
json config_with_divisors(const std::vector<float>& divisors) {
  GgufBuilder builder = small_model("llama");
  builder.number("llama.attention.key_length", 32);
  builder.info("rope_freqs.weight", {divisors.size()}, 0, builder.data.size());
  for (const float divisor : divisors) builder.data += raw(divisor);
  return config_of(builder);
}

// What the converter computes for theta 10000 and head size 32.
std::vector<float> divisors_for(double factor, double low, double high, double original) {
  std::vector<float> divisors;
  for (int i = 0; i < 16; ++i) {
    const double wavelength = 2 * 3.14159265358979323846 * std::pow(10000.0, i / 16.0);
    const double smooth = (original / wavelength - low) / (high - low);
    divisors.push_back(static_cast<float>(wavelength < original / high ? 1.0
                                          : wavelength > original / low
                                              ? factor
                                              : 1 / ((1 - smooth) / factor + smooth)));
  }
  return divisors;
}

TEST(GgufConfig, FindsTheParametersOfLlama3Scaling) {
  for (const double original : {8192.0, 512.0}) {
    const json scaling = config_with_divisors(divisors_for(32, 1, 4, original))["rope_scaling"];
    EXPECT_EQ(scaling["rope_type"], "llama3");
    EXPECT_EQ(scaling["factor"], 32.0);
    EXPECT_EQ(scaling["low_freq_factor"], 1.0);
    EXPECT_EQ(scaling["high_freq_factor"], 4.0);
    EXPECT_EQ(scaling["original_max_position_embeddings"], original);
  }
  // Other proportions: the same divisors come from any multiple of low, high and original.
  const json scaling = config_with_divisors(divisors_for(8, 2, 20, 4096))["rope_scaling"];
  EXPECT_EQ(scaling["original_max_position_embeddings"], 8192);
  EXPECT_NEAR(scaling["low_freq_factor"].get<double>(), 4, 1e-3);
  EXPECT_NEAR(scaling["high_freq_factor"].get<double>(), 40, 1e-3);
  EXPECT_FALSE(config_with_divisors(std::vector<float>(16, 1.0f)).contains("rope_scaling"));
}

TEST(GgufConfig, RefusesDivisorsThatFollowNoScaling) {
  std::vector<float> divisors = divisors_for(8, 1, 4, 512);
  divisors[3] *= 1.01f;
  expect_input_error({"tensor rope_freqs.weight: the divisors follow no llama3 rope scaling"},
                     [&] { config_with_divisors(divisors); });
  divisors.assign(16, std::numeric_limits<float>::infinity());
  expect_input_error({"follow no llama3"}, [&] { config_with_divisors(divisors); });
  expect_input_error({"tensor rope_freqs.weight: the shape is [15]; [16]"},
                     [&] { config_with_divisors(std::vector<float>(15, 2.0f)); });
}

TEST(GgufConfig, ReadsTheDivisorsOfShortAndLongRows) {
  const auto with = [](float last) {
    GgufBuilder builder = small_model("phi3");  // head size 8
    builder.number("phi3.rope.scaling.original_context_length", 128);
    const auto add = [&](const char* name, const std::vector<float>& divisors) {
      builder.data.resize((builder.data.size() + 31) / 32 * 32);
      builder.info(name, {divisors.size()}, 0, builder.data.size());
      for (const float divisor : divisors) builder.data += raw(divisor);
    };
    add("rope_factors_long.weight", {1, 2, 3, last});
    add("rope_factors_short.weight", {1, 1, 1, 1.5f});
    return builder;
  };
  const json config = config_of(with(4.1f));
  EXPECT_EQ(config["original_max_position_embeddings"], 128);
  EXPECT_EQ(config["rope_scaling"]["rope_type"], "longrope");
  EXPECT_EQ(config["rope_scaling"]["long_factor"], json({1.0, 2.0, 3.0, 4.1}));
  EXPECT_EQ(config["rope_scaling"]["short_factor"], json({1.0, 1.0, 1.0, 1.5}));
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::infinity()}) {
    expect_input_error({"rope_factors_long.weight", "above 0"}, [&] { config_of(with(bad)); });
  }
}

TEST(GgufConfig, RefusesWhatIsMissingOrUnknown) {
  expect_input_error({"there is no key general.architecture"}, [] { config_of({}); });
  expect_input_error({"the architecture is \"gpt9\"; gemma2, gemma3"},
                     [] { config_of(small_model("gpt9")); });
  expect_input_error({"there is no key llama.embedding_length"},
                     [] { config_of(GgufBuilder().text("general.architecture", "llama")); });
  expect_input_error({"llama.expert_count is 8"},
                     [] { config_of(small_model("llama").number("llama.expert_count", 8)); });
  expect_input_error({"llama.rope.dimension_count is 9"}, [] {
    config_of(small_model("llama").number("llama.rope.dimension_count", 9));
  });
}

}  // namespace
}  // namespace wgrad::io
