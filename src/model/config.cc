#include "model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace wgrad::model {

std::string_view projection_name(Projection projection) {
  static constexpr std::string_view kNames[kProjectionCount] = {
      "self_attn.q_proj", "self_attn.k_proj",   "self_attn.v_proj",
      "self_attn.o_proj", "mlp.gate_proj",      "mlp.up_proj",
      "mlp.down_proj",    "self_attn.qkv_proj", "mlp.gate_up_proj"};
  return kNames[static_cast<size_t>(projection)];
}

std::span<const Projection> parts_of(Projection stored) {
  const auto from = [](Projection first, size_t count) {
    return std::span(kProducts).subspan(static_cast<size_t>(first), count);
  };
  if (stored == Projection::kQkv) return from(Projection::kQ, 3);
  if (stored == Projection::kGateUp) return from(Projection::kGate, 2);
  return from(stored, 1);
}

std::string ModelConfig::note_on_parts() const {
  if (other_parts.empty()) return {};
  return fmt::format("the text model alone is used; {} are left as they are",
                     fmt::join(other_parts, " and "));
}

std::string ModelConfig::layer_name(int64_t layer) const {
  return fmt::format("{}.layers.{}", body, layer);
}

std::string ModelConfig::module_name(int64_t layer, Projection projection) const {
  return fmt::format("{}.{}", layer_name(layer), projection_name(projection));
}

std::vector<Projection> ModelConfig::projections() const {
  std::vector<Projection> stored;
  for (const Projection p : kProducts) {
    if (stored.empty() || stored.back() != stored_in(p)) stored.push_back(stored_in(p));
  }
  return stored;
}

Projection ModelConfig::stored_in(Projection part) const {
  const bool attention = part == Projection::kQ || part == Projection::kK || part == Projection::kV;
  if (fused_qkv && attention) return Projection::kQkv;
  if (fused_gate_up && (part == Projection::kGate || part == Projection::kUp)) {
    return Projection::kGateUp;
  }
  return part;
}

int64_t ModelConfig::out_features(Projection projection) const {
  switch (projection) {
    case Projection::kQ:
      return query_size();
    case Projection::kK:
    case Projection::kV:
      return key_size();
    case Projection::kGate:
    case Projection::kUp:
      return intermediate_size;
    case Projection::kO:
    case Projection::kDown:
      return hidden_size;
    case Projection::kQkv:
      return query_size() + 2 * key_size();
    case Projection::kGateUp:
      return 2 * intermediate_size;
  }
  return 0;
}

int64_t ModelConfig::in_features(Projection projection) const {
  switch (projection) {
    case Projection::kO:
      return query_size();
    case Projection::kDown:
      return intermediate_size;
    default:
      return hidden_size;
  }
}

bool ModelConfig::has_bias(Projection projection) const {
  switch (projection) {
    case Projection::kQ:
    case Projection::kK:
    case Projection::kV:
    case Projection::kQkv:
      return qkv_bias;
    case Projection::kO:
      return output_bias;
    default:
      return mlp_bias;
  }
}

std::vector<NormSpec> ModelConfig::norms() const {
  std::vector<NormSpec> found;
  if (pre_norms) found.push_back({NormKind::kInput, "input_layernorm", hidden_size});
  if (qk_norm != QkNorm::kNone) {
    const bool whole = qk_norm == QkNorm::kWhole;
    found.push_back({NormKind::kQ, "self_attn.q_norm", whole ? query_size() : head_dim});
    found.push_back({NormKind::kK, "self_attn.k_norm", whole ? key_size() : head_dim});
  }
  // Without norms of its output the attention half lends its name to the norm after it.
  if (post_norms) {
    found.push_back({NormKind::kAttentionOutput, "post_attention_layernorm", hidden_size});
  }
  if (pre_norms) {
    const std::string_view name =
        post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    found.push_back({NormKind::kMiddle, name, hidden_size});
  }
  if (post_norms) {
    found.push_back({NormKind::kFeedForwardOutput, "post_feedforward_layernorm", hidden_size});
  }
  return found;
}

bool ModelConfig::same_rotation(int64_t length, int64_t other_length) const {
  return std::all_of(ropes.begin(), ropes.end(), [&](const RopeConfig& rope) {
    return rope.regime(length) == rope.regime(other_length);
  });
}

int64_t ModelConfig::parameters() const {
  int64_t block = 0;
  for (const NormSpec& norm : norms()) block += norm.size;
  for (const Projection p : projections()) {
    block += out_features(p) * in_features(p) + (has_bias(p) ? out_features(p) : 0);
  }
  const int64_t table = vocab_size * hidden_size;
  return layers * block + hidden_size + (tied_embeddings ? table : 2 * table);
}

}  // namespace wgrad::model
