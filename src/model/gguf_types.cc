#include "model/gguf_types.h"

#include <fmt/format.h>

#include <charconv>

#include "io/quantize.h"

namespace wgrad::model {
namespace {

using io::FileType;

constexpr int64_t kLayersOf70B = 80;

FileType plain(GgufType type) {
  switch (type) {
    case GgufType::kF16:
      return FileType::kF16;
    case GgufType::kBF16:
      return FileType::kBF16;
    case GgufType::kQ8_0:
      return FileType::kQ8_0;
    case GgufType::kQ4_0:
      return FileType::kQ4_0;
    case GgufType::kQ4_K:
      return FileType::kQ4_K;
    default:
      return FileType::kF32;
  }
}

bool fits(FileType type, int64_t row) {
  return row % static_cast<int64_t>(io::block_elements(type)) == 0;
}

bool is_vector(std::string_view name, const io::TensorView& tensor) {
  return tensor.shape.size() < 2 || name.find("_norm.") != std::string_view::npos;
}

/// "blk.17.ffn_down.weight" -> 17.
int64_t layer_of(std::string_view name) {
  int64_t layer = 0;
  std::from_chars(name.data() + std::string_view("blk.").size(), name.data() + name.size(), layer);
  return layer;
}

/// The first and last eighth of the layers and every third between.
bool deserves_more(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

}  // namespace

FileType GgufTypes::choose(std::string_view name, const io::TensorView& tensor) {
  const bool stored_as_weights = io::is_floating(tensor.type);
  if (type_ == GgufType::kKeep) {
    if (io::is_quantized(tensor.type)) return tensor.type;
    return is_vector(name, tensor) || !stored_as_weights ? FileType::kF32 : tensor.type;
  }
  if (is_vector(name, tensor)) return FileType::kF32;
  return fitting(mixed(name, tensor.row_size()), tensor.row_size());
}

FileType GgufTypes::mixed(std::string_view name, int64_t row) const {
  const FileType type = plain(type_);
  if (type_ != GgufType::kQ4_0 && type_ != GgufType::kQ4_K) return type;
  if (name == "output.weight" || (tied_ && name == "token_embd.weight")) {
    return fits(type, row) ? FileType::kQ6_K : FileType::kQ8_0;
  }
  if (type_ == GgufType::kQ4_0) return type;
  const bool values = name.ends_with(".attn_v.weight");
  if ((values || name.ends_with(".ffn_down.weight")) && deserves_more(layer_of(name), layers_)) {
    return FileType::kQ6_K;
  }
  // 8 heads share the values of models of this depth, so more bits for them cost little.
  if (values && layers_ == kLayersOf70B) return FileType::kQ5_K;
  return name.ends_with(".attn_qkv.weight") ? FileType::kQ5_K : type;
}

FileType GgufTypes::fitting(FileType type, int64_t row) {
  if (fits(type, row)) return type;
  FileType other = FileType::kF16;
  if (type == FileType::kQ4_K) other = FileType::kQ5_0;
  if (type == FileType::kQ5_K) other = FileType::kQ5_1;
  if (type == FileType::kQ6_K) other = FileType::kQ8_0;
  if (!fits(other, row)) other = FileType::kF16;
  ++replaced_[{type, other}];
  return other;
}

int GgufTypes::file_type() const {
  switch (type_) {
    case GgufType::kF32:
      return 0;
    case GgufType::kF16:
      return 1;
    case GgufType::kQ4_0:
      return 2;
    case GgufType::kQ8_0:
      return 7;
    case GgufType::kQ4_K:
      return 15;
    case GgufType::kBF16:
      return 32;
    default:
      return -1;
  }
}

std::vector<std::string> GgufTypes::notes() const {
  std::vector<std::string> notes;
  for (const auto& [types, count] : replaced_) {
    notes.push_back(fmt::format(
        "stored as {} rather than {}, because their rows are no multiple of {}: {} tensor{}",
        io::file_type_name(types.second), io::file_type_name(types.first),
        io::block_elements(types.first), count, count == 1 ? "" : "s"));
  }
  return notes;
}

}  // namespace wgrad::model
