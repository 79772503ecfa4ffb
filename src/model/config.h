#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/rope.h"
#include "ops/elementwise.h"
#include "ops/loss.h"

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

/// The norms of a block, in the order of the forward pass.
enum class NormKind : uint8_t {
  kInput,              ///< before the attention half
  kQ,                  ///< of q, before the rotation
  kK,                  ///< of k
  kAttentionOutput,    ///< of what the attention half adds to the residual stream
  kMiddle,             ///< before the feed-forward half
  kFeedForwardOutput,  ///< of what the feed-forward half adds
};
inline constexpr int kNormCount = 6;

struct NormSpec {
  NormKind kind;
  std::string_view name;  ///< within a block: "self_attn.q_norm"
  int64_t size;
};

enum class QkNorm : uint8_t {
  kNone,
  kHead,   ///< over each head
  kWhole,  ///< over all heads of a token together
};

inline constexpr int kNoRope = -1;

/// What the decoder must know of a model: every size and every switch that changes its result.
struct ModelConfig {
  std::string model_type;  ///< "llama", "gemma2", ...
  /// The module that holds the embeddings, the blocks and the last norm, as transformers names it.
  std::string body = "model";
  std::vector<std::string> other_parts;  ///< modules beside these in a class of several models
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_positions = 0;
  float rms_norm_eps = 1e-6f;
  float norm_offset = 0.0f;        ///< a norm multiplies by this plus its weight
  bool pre_norms = true;           ///< norms of the inputs of both halves of a block
  bool post_norms = false;         ///< norms of what they add to the residual stream
  QkNorm qk_norm = QkNorm::kNone;  ///< of q and k, before the rotation
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool fused_qkv = false, fused_gate_up = false;        ///< stored as kQkv, kGateUp
  bool tied_embeddings = false;                         ///< the output layer is the embedding table
  ops::Activation activation = ops::Activation::kSilu;  ///< of the gate
  float embedding_scale = 1.0f;                         ///< multiplies the embeddings of the tokens
  float residual_scale = 1.0f;      ///< multiplies what a half adds to the residual stream
  ops::LogitMap logits;             ///< from the output layer to the logits
  float attention_soft_cap = 0.0f;  ///< as AttentionShape::soft_cap
  float attention_scale = 0.0f;     ///< of q k^T
  std::vector<int64_t> windows;     ///< a layer: how many keys a query sees; 0 is all
  std::vector<RopeConfig> ropes;    ///< the different rotary embeddings
  std::vector<int> layer_ropes;     ///< a layer: which of them it has; kNoRope
  std::vector<uint32_t> eos_ids;    ///< as the config (and generation_config.json) name them
  std::string json;                 ///< the config.json that this was read from

  /// The linear layers of a block as the checkpoint stores them.
  std::vector<Projection> projections() const;
  /// The stored layer that holds a product.
  Projection stored_in(Projection part) const;
  int64_t query_size() const { return heads * head_dim; }
  int64_t key_size() const { return kv_heads * head_dim; }
  int64_t out_features(Projection projection) const;
  int64_t in_features(Projection projection) const;
  bool has_bias(Projection projection) const;
  /// Those that a block has.
  std::vector<NormSpec> norms() const;
  /// What is left alone of a class of several models, for the user; empty where nothing is.
  std::string note_on_parts() const;
  /// "model.layers.3".
  std::string layer_name(int64_t layer) const;
  /// "model.layers.3.self_attn.q_proj".
  std::string module_name(int64_t layer, Projection projection) const;
  /// "model.embed_tokens".
  std::string table_name() const { return body + ".embed_tokens"; }
  /// Whether rows of so many tokens turn by the same frequencies in every layer.
  bool same_rotation(int64_t length, int64_t other_length) const;
  /// All weights, the tied output layer counted once.
  int64_t parameters() const;
};

/// Reads a Hugging Face config.json. An unknown architecture, a field of the wrong type or out of
/// range, and a field that would change the result in a way that is not built here are input
/// errors that name `where` and the field.
ModelConfig parse_config(const nlohmann::json& json, std::string_view where);

/// The config of a Hugging Face folder (config.json, and the end tokens of generation_config.json)
/// or of a .gguf file.
ModelConfig read_config(const std::filesystem::path& model);

}  // namespace wgrad::model
