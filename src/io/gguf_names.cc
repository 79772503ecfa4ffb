#include "io/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "io/row_range.h"
#include "wgrad/error.h"

namespace wgrad::io {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

constexpr Pair kTop[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};

constexpr Pair kBlock[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

/// How an architecture's file differs from a plain one.
struct Dialect {
  std::string_view architecture;
  std::vector<Pair> names;   ///< before those of kBlock
  bool paired_rows = false;  ///< q and k are stored for the rotation of neighbouring pairs
  float norm_offset = 0.0f;  ///< what norms are stored plus
};

const Dialect& dialect_of(std::string_view architecture) {
  constexpr Pair kPostAttention = {"post_attention_norm", "post_attention_layernorm"};
  constexpr Pair kPostFeedForward = {"post_ffw_norm", "post_feedforward_layernorm"};
  constexpr Pair kPreFeedForward = {"ffn_norm", "pre_feedforward_layernorm"};
  static const Dialect kDialects[] = {
      {"gemma2", {kPostAttention, kPreFeedForward, kPostFeedForward}, false, 1.0f},
      {"gemma3", {kPostAttention, kPreFeedForward, kPostFeedForward}, false, 1.0f},
      {"granite", {}, true, 0.0f},
      {"llama", {}, true, 0.0f},
      {"olmo2", {kPostAttention, kPostFeedForward}, false, 0.0f},
      {"phi3", {{"attn_qkv", "self_attn.qkv_proj"}, {"ffn_up", "mlp.gate_up_proj"}}, false, 0.0f},
      {"smollm3", {}, true, 0.0f},
  };
  static const Dialect kPlain;
  for (const Dialect& dialect : kDialects) {
    if (dialect.architecture == architecture) return dialect;
  }
  return kPlain;
}

std::optional<std::string_view> lookup(std::span<const Pair> table, std::string_view key) {
  for (const auto& [from, to] : table) {
    if (from == key) return to;
  }
  return std::nullopt;
}

std::optional<std::string_view> reverse_lookup(std::span<const Pair> table, std::string_view key) {
  for (const auto& [from, to] : table) {
    if (to == key) return from;
  }
  return std::nullopt;
}

// The scaling of the rotary frequencies is part of the configuration (gguf_config_json).
bool belongs_to_config(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight";
}

/// How rows of q and k were reordered: within each head of `head` rows, row 2i + s of the file is
/// row s * head / 2 + i of Hugging Face. A head of 0: not at all.
struct RowOrder {
  std::int64_t head = 0;

  std::int64_t stored(std::int64_t row) const {
    if (head == 0) return row;
    const std::int64_t within = row % head;
    const std::int64_t half = head / 2;
    return row - within + 2 * (within % half) + within / half;
  }
};

class GgufSource : public TensorSource {
 public:
  explicit GgufSource(std::shared_ptr<const GgufFile> file)
      : file_(std::move(file)), where_(file_->file().path().string()) {
    refuse_split();
    const std::string arch(file_->string("general.architecture").value_or(""));
    const Dialect& dialect = dialect_of(arch);
    const bool reordered = dialect.paired_rows;
    for (const TensorView& tensor : file_->tensors()) {
      if (belongs_to_config(tensor.name)) continue;
      const auto name = hf_tensor_name(tensor.name, arch);
      if (!name) {
        throw input_error(tensor.where, "this tensor is not known here",
                          "the tensors of a plain decoder", "use a model of a supported family");
      }
      Entry entry{tensor, {}, 0.0f};
      entry.tensor.name = *name;
      if (reordered && is_any(*name, ".self_attn.q_proj.")) {
        entry.order = order_of(tensor, arch + ".attention.head_count");
      } else if (reordered && is_any(*name, ".self_attn.k_proj.")) {
        entry.order = order_of(tensor, file_->find(arch + ".attention.head_count_kv") != nullptr
                                           ? arch + ".attention.head_count_kv"
                                           : arch + ".attention.head_count");
      }
      if (dialect.norm_offset != 0 && name->ends_with("norm.weight")) {
        if (tensor.type != FileType::kF32) {
          throw input_error(tensor.where,
                            fmt::format("the type is {}", file_type_name(tensor.type)),
                            "F32 for a norm", "fetch or convert the file again");
        }
        entry.offset = dialect.norm_offset;
      }
      entry.tensor.in_order = entry.order.head == 0 && entry.offset == 0;
      index_.emplace(*name, std::move(entry));
    }
  }

  std::string where() const override { return where_; }

  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& [name, entry] : index_) result.push_back(name);
    std::sort(result.begin(), result.end());
    return result;
  }

  const TensorView* find(std::string_view name) const override {
    const auto found = index_.find(std::string(name));
    return found == index_.end() ? nullptr : &found->second.tensor;
  }

  void read_bytes(const TensorView& tensor, std::int64_t begin, std::int64_t end,
                  std::span<std::byte> out) const override {
    check_row_range(tensor, begin, end, tensor.row_bytes(), out.size());
    const RowOrder order = order_of(tensor);
    const auto from = stored_rows(tensor, begin, end);
    if (const float offset = offset_of(tensor); offset != 0) {
      std::vector<float> values(out.size() / sizeof(float));
      to_f32(tensor.type, from, values);
      for (float& value : values) value -= offset;
      std::memcpy(out.data(), values.data(), out.size());
      return;
    }
    if (order.head == 0) {
      if (!from.empty()) std::memcpy(out.data(), from.data(), from.size());
      return;
    }
    if (tensor.shape.size() == 1) {
      const std::size_t item = block_bytes(tensor.type);
      for (std::size_t i = 0; i < from.size() / item; ++i) {
        const auto stored = order.stored(static_cast<std::int64_t>(i));
        std::memcpy(&out[i * item], &from[static_cast<std::size_t>(stored) * item], item);
      }
      return;
    }
    for (std::int64_t row = begin; row < end; ++row) {
      const auto stored = stored_row(tensor, order.stored(row));
      std::memcpy(&out[static_cast<std::size_t>(row - begin) * stored.size()], stored.data(),
                  stored.size());
    }
  }

  using TensorSource::read_f32;
  void read_f32(const TensorView& tensor, std::int64_t begin, std::int64_t end,
                std::span<float> out) const override {
    const auto row_size = static_cast<std::size_t>(tensor.row_size());
    check_row_range(tensor, begin, end, row_size, out.size());
    const RowOrder order = order_of(tensor);
    if (order.head == 0) {
      to_f32(tensor.type, stored_rows(tensor, begin, end), out);
      if (const float offset = offset_of(tensor); offset != 0) {
        for (float& value : out) value -= offset;
      }
    } else if (tensor.shape.size() == 1) {
      std::vector<float> stored(out.size());
      to_f32(tensor.type, stored_rows(tensor, begin, end), stored);
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = stored[static_cast<std::size_t>(order.stored(static_cast<std::int64_t>(i)))];
      }
    } else {
      for (std::int64_t row = begin; row < end; ++row) {
        to_f32(tensor.type, stored_row(tensor, order.stored(row)),
               out.subspan(static_cast<std::size_t>(row - begin) * row_size, row_size));
      }
    }
  }

  void release(const TensorView& tensor) const override { file_->file().release(tensor.bytes); }

 private:
  struct Entry {
    TensorView tensor;
    RowOrder order;
    float offset;  ///< that the values are stored plus
  };

  static bool is_any(const std::string& name, std::string_view part) {
    return name.find(part) != std::string::npos;
  }

  static std::span<const std::byte> stored_row(const TensorView& tensor, std::int64_t row) {
    return stored_rows(tensor, row, row + 1);
  }

  float offset_of(const TensorView& tensor) const {
    const auto found = index_.find(tensor.name);
    return found == index_.end() ? 0.0f : found->second.offset;
  }

  RowOrder order_of(const TensorView& tensor) const {
    const auto found = index_.find(tensor.name);
    return found == index_.end() ? RowOrder{} : found->second.order;
  }

  RowOrder order_of(const TensorView& tensor, const std::string& heads_key) const {
    const auto heads = file_->integer(heads_key);
    const std::int64_t rows = tensor.shape.empty() ? 0 : tensor.shape.front();
    if (!heads || *heads <= 0 || tensor.shape.size() > 2 || rows % *heads != 0 ||
        rows / *heads % 2 != 0 || rows == 0 ||
        (tensor.shape.size() == 1 && is_quantized(tensor.type))) {
      throw input_error(
          tensor.where,
          fmt::format("{} {} does not divide into the heads that {} gives",
                      file_type_name(tensor.type), shape_text(tensor.shape), heads_key),
          "an even number of rows a head", "fetch or convert the file again");
    }
    return {rows / *heads};
  }

  void refuse_split() const {
    const auto parts = file_->integer("split.count");
    if (!parts || *parts <= 1) return;
    throw input_error(where_, fmt::format("this is one of {} parts of a split model", *parts),
                      "one file", "join the parts with llama-gguf-split --merge");
  }

  std::shared_ptr<const GgufFile> file_;
  std::string where_;
  std::unordered_map<std::string, Entry> index_;
};

}  // namespace

std::optional<std::string> hf_tensor_name(std::string_view gguf_name,
                                          std::string_view architecture) {
  const std::size_t dot = gguf_name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  std::string_view stem = gguf_name.substr(0, dot);
  const std::string_view kind = gguf_name.substr(dot + 1);
  if (kind != "weight" && kind != "bias") return std::nullopt;
  if (!stem.starts_with("blk.")) {
    const auto top = lookup(kTop, stem);
    if (!top) return std::nullopt;
    return fmt::format("{}.{}", *top, kind);
  }
  stem.remove_prefix(4);
  const std::size_t end = stem.find('.');
  if (end == std::string_view::npos || end == 0 || end > 6) return std::nullopt;
  const std::string_view layer = stem.substr(0, end);
  const bool number = layer.find_first_not_of("0123456789") == std::string_view::npos &&
                      (layer.size() == 1 || layer.front() != '0');
  const std::string_view module = stem.substr(end + 1);
  auto block = lookup(dialect_of(architecture).names, module);
  if (!block) block = lookup(kBlock, module);
  if (!number || !block) return std::nullopt;
  return fmt::format("model.layers.{}.{}.{}", layer, *block, kind);
}

std::optional<std::string> gguf_tensor_name(std::string_view hf_name,
                                            std::string_view architecture) {
  const std::size_t dot = hf_name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  std::string_view stem = hf_name.substr(0, dot);
  const std::string_view kind = hf_name.substr(dot + 1);
  if (kind != "weight" && kind != "bias") return std::nullopt;
  constexpr std::string_view kLayers = "model.layers.";
  if (!stem.starts_with(kLayers)) {
    const auto top = reverse_lookup(kTop, stem);
    return top ? std::optional(fmt::format("{}.{}", *top, kind)) : std::nullopt;
  }
  stem.remove_prefix(kLayers.size());
  const std::size_t end = stem.find('.');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view module = stem.substr(end + 1);
  auto block = reverse_lookup(dialect_of(architecture).names, module);
  if (!block) block = reverse_lookup(kBlock, module);
  if (!block) return std::nullopt;
  return fmt::format("blk.{}.{}.{}", stem.substr(0, end), *block, kind);
}

std::int64_t half_split_row(std::int64_t row, std::int64_t head) {
  const std::int64_t within = row % head;
  return row - within + within % 2 * (head / 2) + within / 2;
}

std::unique_ptr<TensorSource> open_gguf_source(std::shared_ptr<const GgufFile> file) {
  return std::make_unique<GgufSource>(std::move(file));
}

}  // namespace wgrad::io
