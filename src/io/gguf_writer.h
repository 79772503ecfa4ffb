#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "io/safetensors.h"

namespace wgrad::io {

/// Puts a GGUF 3 file together: keys and tensors in the order in which they are added. Owns the
/// keys; what the tensors' `produce` needs must live until write().
class GgufWriter {
 public:
  /// A key that is there already keeps its first value.
  void text(std::string_view key, std::string_view value);
  void number(std::string_view key, std::uint32_t value);
  void fraction(std::string_view key, float value);
  void flag(std::string_view key, bool value);
  void texts(std::string_view key, std::span<const std::string> values);
  void numbers(std::string_view key, std::span<const std::int32_t> values);
  void fractions(std::string_view key, std::span<const float> values);
  /// A value as GgufFile::raw gives it.
  void raw(std::string_view key, std::span<const std::byte> type_and_value);

  /// Shapes are outermost first, as everywhere here.
  void tensor(TensorToWrite tensor) { tensors_.push_back(std::move(tensor)); }

  /// The bytes that the file will have.
  std::uint64_t file_size() const;
  /// Checks the disk's free space, then writes atomically (temporary name, fsync, rename), tensor
  /// by tensor.
  void write(const std::filesystem::path& path) const;

 private:
  bool begin_key(std::string_view key, std::uint32_t type);
  void append_text(std::string_view value);
  void append_bytes(std::span<const std::byte> bytes);
  template <typename T>
  void append(T value);
  template <typename T>
  void append_array(std::string_view key, std::uint32_t type, std::span<const T> values);
  std::string header() const;

  std::string keys_;
  std::unordered_set<std::string> seen_;
  std::vector<TensorToWrite> tensors_;
};

}  // namespace wgrad::io
