#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "testing.h"

namespace wgrad::io {

/// Value types of the format, for building files.
enum GgufTag : std::uint32_t {
  kTagUint32 = 4,
  kTagFloat32 = 6,
  kTagString = 8,
  kTagArray = 9,
  kTagUint64 = 10,
};

inline std::string gguf_string(std::string_view text) {
  return raw<std::uint64_t>(text.size()) + std::string(text);
}

/// Puts a GGUF file together from its parts, valid or not.
struct GgufBuilder {
  std::uint32_t version = 3;
  std::string keys;
  std::string infos;
  std::string data;
  std::uint64_t key_count = 0;
  std::uint64_t tensor_count = 0;

  GgufBuilder& key(std::string_view name, std::uint32_t type, std::string_view value) {
    keys += gguf_string(name) + raw(type) + std::string(value);
    ++key_count;
    return *this;
  }
  GgufBuilder& text(std::string_view name, std::string_view value) {
    return key(name, kTagString, gguf_string(value));
  }
  GgufBuilder& number(std::string_view name, std::uint32_t value) {
    return key(name, kTagUint32, raw(value));
  }
  GgufBuilder& fraction(std::string_view name, float value) {
    return key(name, kTagFloat32, raw(value));
  }
  /// `dimensions` innermost first, as the format has them.
  GgufBuilder& info(std::string_view name, const std::vector<std::uint64_t>& dimensions,
                    std::uint32_t type, std::uint64_t offset) {
    infos += gguf_string(name) + raw(static_cast<std::uint32_t>(dimensions.size()));
    for (const std::uint64_t dimension : dimensions) infos += raw(dimension);
    infos += raw(type) + raw(offset);
    ++tensor_count;
    return *this;
  }
  /// An f32 tensor of zeros behind those before it.
  GgufBuilder& zeros(std::string_view name, const std::vector<std::uint64_t>& dimensions) {
    std::uint64_t count = 1;
    for (const std::uint64_t dimension : dimensions) count *= dimension;
    info(name, dimensions, 0, data.size());
    data.append((count * 4 + 31) / 32 * 32, '\0');
    return *this;
  }

  std::string bytes() const {
    std::string file = "GGUF" + raw(version) + raw(tensor_count) + raw(key_count) + keys + infos;
    file.resize((file.size() + 31) / 32 * 32);
    return file + data;
  }
};

}  // namespace wgrad::io
