#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "wgrad/error.h"

namespace wgrad::io {

/// Turns an errno value into an error: "PATH: cannot DOING: No space left on device (errno 28);
/// ...; what to do".
Error disk_error(const std::filesystem::path& path, std::string_view doing, int error_number,
                 ErrorKind kind = ErrorKind::kRuntime);

/// Owns one open file descriptor and closes it. Knows its path for error texts.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  FileDescriptor(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { reset(); }

  /// Opens an existing file for reading. A missing or unreadable file is an input error.
  static FileDescriptor open_input(const std::filesystem::path& path);
  /// The same for a file on a disk alone: a pipe, which could keep the caller waiting, or a device,
  /// which could be without end, is an input error.
  static FileDescriptor open_plain_file(const std::filesystem::path& path);
  /// Creates or empties a file for writing.
  static FileDescriptor create(const std::filesystem::path& path);
  /// Opens a file for appending, creating it where it is missing.
  static FileDescriptor open_append(const std::filesystem::path& path);

  int get() const noexcept { return fd_; }
  const std::filesystem::path& path() const noexcept { return path_; }

  /// Reads up to `out.size()` bytes; 0 at the end of the file.
  std::size_t read_some(std::span<char> out);
  /// Writes all bytes, however many calls that takes.
  void write_all(std::span<const std::byte> bytes);
  /// Flushes to the disk.
  void sync();
  std::uint64_t size() const;
  void truncate(std::uint64_t size);
  /// Closes and reports what only close can report (a quota, a network disk).
  void close();

 private:
  void reset() noexcept;
  unsigned mode() const;

  int fd_ = -1;
  std::filesystem::path path_;
};

/// Flushes a folder's entries to the disk, so that a rename in it survives a power cut.
void sync_folder(const std::filesystem::path& folder);

}  // namespace wgrad::io
