#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wgrad::model {

/// The linear layers of a block: its matrix products in the order of the forward pass, then the
/// layers in which some checkpoints store several of them, one below the other.
enum class Projection : uint8_t { kQ, kK, kV, kO, kGate, kUp, kDown, kQkv, kGateUp };
inline constexpr int kProjectionCount = 9;
inline constexpr std::array kProducts = {Projection::kQ,   Projection::kK,    Projection::kV,
                                         Projection::kO,   Projection::kGate, Projection::kUp,
                                         Projection::kDown};

/// "self_attn.q_proj": the name within a block, as Hugging Face checkpoints have it.
std::string_view projection_name(Projection projection);
/// The products whose rows a stored layer holds, from the top: q, k and v for kQkv, gate and up for
/// kGateUp, else the layer itself.
std::span<const Projection> parts_of(Projection stored);

enum class RopeScaling : uint8_t {
  kNone,
  kLinear,  ///< every frequency divided by `factor`
  kLlama3,  ///< long wavelengths divided by `factor`, short ones kept, smooth in between
};

struct RopeConfig {
  RopeScaling scaling = RopeScaling::kNone;
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  int64_t original_max_positions = 0;
};

/// What the decoder must know of a model: every size and every switch that changes its result.
struct ModelConfig {
  std::string model_type;  ///< "llama", "mistral", "qwen2", "qwen3"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_positions = 0;
  float rms_norm_eps = 1e-6f;
  RopeConfig rope;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool fused_qkv = false, fused_gate_up = false;  ///< stored as kQkv, kGateUp
  bool qk_norm = false;           ///< RMSNorm over each head of q and k, before the rotation
  bool tied_embeddings = false;   ///< the output layer is the embedding table
  std::vector<int64_t> windows;   ///< a layer: how many keys a query sees; 0 is all
  std::vector<uint32_t> eos_ids;  ///< as the config (and generation_config.json) name them
  std::string json;               ///< the config.json that this was read from

  /// The linear layers of a block as the checkpoint stores them.
  std::vector<Projection> projections() const;
  /// The stored layer that holds a product.
  Projection stored_in(Projection part) const;
  int64_t query_size() const { return heads * head_dim; }
  int64_t key_size() const { return kv_heads * head_dim; }
  int64_t out_features(Projection projection) const;
  int64_t in_features(Projection projection) const;
  bool has_bias(Projection projection) const;
  /// All weights, the tied output layer counted once.
  int64_t parameters() const;
};

/// "model.layers.3.self_attn.q_proj".
std::string module_name(int64_t layer, Projection projection);

/// Reads a Hugging Face config.json. An unknown architecture, a field of the wrong type or out of
/// range, and a field that would change the result in a way that is not built here are input
/// errors that name `where` and the field.
ModelConfig parse_config(const nlohmann::json& json, std::string_view where);

/// The config of a Hugging Face folder (config.json, and the end tokens of generation_config.json)
/// or of a .gguf file.
ModelConfig read_config(const std::filesystem::path& model);

/// The rotary frequencies as transformers computes them, in double: head_dim / 2 values.
std::vector<double> rope_inverse_frequencies(const RopeConfig& rope, int64_t head_dim);
/// (cos, sin) of position * frequency for [positions, head_dim / 2]; see ops/rope.h.
std::vector<float> rope_table(const ModelConfig& config, int64_t positions);

}  // namespace wgrad::model
