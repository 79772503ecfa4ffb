#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "io/mapped_file.h"
#include "io/tensor_view.h"

namespace wgrad::io {

struct GgufValue;

/// An array of the metadata; the alternative follows the file's element type: unsigned and signed
/// integers, floats, booleans (as integers), strings, arrays.
using GgufArray =
    std::variant<std::vector<std::uint64_t>, std::vector<std::int64_t>, std::vector<double>,
                 std::vector<std::string_view>, std::vector<GgufValue>>;

/// One metadata value. Strings point into the mapped file.
struct GgufValue {
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray> value;
};

/// A GGUF file (version 2 or 3, little-endian), mapped, every count and offset checked. Owns the
/// mapping; views and string_views live as long as it does. Shapes are turned to outermost first.
class GgufFile {
 public:
  static GgufFile open(const std::filesystem::path& path);

  std::uint32_t version() const noexcept { return version_; }
  const MappedFile& file() const noexcept { return file_; }

  /// Metadata keys in the file's order.
  const std::vector<std::string>& keys() const noexcept { return keys_; }
  const GgufValue* find(std::string_view key) const;
  /// The bytes of a key's type and value, to write it again as it is; the key must be there.
  std::span<const std::byte> raw(std::string_view key) const;
  /// Typed access: nothing where the key is absent, an input error naming the key where its value
  /// is of another type or does not fit.
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> string(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;
  std::optional<std::vector<std::string_view>> strings(std::string_view key) const;

  /// In the file's order, under the file's own names.
  const std::vector<TensorView>& tensors() const noexcept { return tensors_; }
  const TensorView* find_tensor(std::string_view name) const;

 private:
  friend class GgufParser;

  MappedFile file_;
  std::uint32_t version_ = 0;
  std::vector<std::string> keys_;
  std::unordered_map<std::string, GgufValue> values_;
  std::unordered_map<std::string, std::span<const std::byte>> raw_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string, std::size_t> tensor_index_;
};

}  // namespace wgrad::io
