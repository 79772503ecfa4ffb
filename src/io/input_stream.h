#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace wgrad::io {

/// The bytes of a file, or of standard input for "-", read once from begin to end. What begins with
/// gzip's mark is unpacked on the way, in constant memory. Owns the open file.
class InputStream {
 public:
  /// A missing file is an input error.
  static InputStream open(const std::filesystem::path& path);
  InputStream(InputStream&&) noexcept;
  InputStream& operator=(InputStream&&) noexcept;
  ~InputStream();

  /// Reads up to `out.size()` bytes; 0 at the end. Damaged gzip data is an input error.
  std::size_t read_some(std::span<char> out);
  /// For error texts: the path, or "standard input".
  const std::string& name() const;

 private:
  struct State;
  explicit InputStream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace wgrad::io
