#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/mapped_file.h"
#include "io/tensor_view.h"

namespace wgrad::io {

/// A safetensors file, mapped, its header checked: every tensor's bytes lie within the file, none
/// overlap, none are left over, and each has the size that its type and shape call for.
/// Owns the mapping; the views live as long as it does.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);

  /// In the order of their bytes in the file.
  const std::vector<TensorView>& tensors() const noexcept { return tensors_; }
  const TensorView* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }
  const MappedFile& file() const noexcept { return file_; }

 private:
  MappedFile file_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string, std::size_t> index_;
  std::map<std::string, std::string> metadata_;
};

/// Takes the next bytes of a tensor.
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// One tensor to be written. `produce` is called once and passes the tensor's bytes, in order and
/// in as many pieces as it likes, to the sink; a wrong total is a runtime error.
struct TensorToWrite {
  std::string name;
  FileType type = FileType::kF32;
  std::vector<std::int64_t> shape;
  std::function<void(const ByteSink&)> produce;
};

/// A tensor whose bytes lie ready in memory; they must outlive the write.
TensorToWrite tensor_from_bytes(std::string name, FileType type, std::vector<std::int64_t> shape,
                                std::span<const std::byte> bytes);

/// Writes a file that the reference implementation reads, atomically (temporary name, fsync,
/// rename). The larger element types come first, so that each tensor is aligned to its element;
/// within a size the given order is kept.
void write_safetensors(const std::filesystem::path& path, std::vector<TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace wgrad::io
