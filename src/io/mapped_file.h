#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace wgrad::io {

/// Owns a read-only mapping of a whole file. Move-only; spans into it live as long as it does.
/// An empty file maps to an empty span. The file must not shrink while it is mapped.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws an input error for a path that is missing, unreadable or no plain file.
  static MappedFile open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  std::size_t size() const noexcept { return size_; }
  const std::filesystem::path& path() const noexcept { return path_; }

  /// Lets the system drop the pages that lie wholly within the range, so that weights streamed to
  /// a device do not stay in memory. The bytes remain readable (they are read again from the disk).
  void release(std::size_t offset, std::size_t size) const noexcept;
  /// The same for a span into this mapping; spans from elsewhere are ignored.
  void release(std::span<const std::byte> part) const noexcept;

 private:
  void reset() noexcept;

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::filesystem::path path_;
};

}  // namespace wgrad::io
