#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "io/file_descriptor.h"

namespace wgrad::io {

/// Writes a file so that its name shows either the old content or the whole new one: into
/// "NAME.tmp-PID" beside it, flushed, then renamed. Owns the temporary file and removes it unless
/// commit() was reached. Errors of the disk are runtime errors that name the path.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path target);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();
  const std::filesystem::path& target() const noexcept { return target_; }

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  FileDescriptor file_;
  bool committed_ = false;
};

/// The whole of `text` as the new content of `target`.
void write_file_atomically(const std::filesystem::path& target, std::string_view text);

enum class IfExists { kRefuse, kReplace };

/// Makes a folder that appears under its name only when it is complete. The caller writes into
/// path(); commit() flushes every file in it and renames it to the target. Owns the temporary
/// folder "NAME.tmp-PID" and removes it unless commit() was reached.
class AtomicFolder {
 public:
  explicit AtomicFolder(std::filesystem::path target, IfExists if_exists = IfExists::kRefuse);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  const std::filesystem::path& path() const noexcept { return temporary_; }
  const std::filesystem::path& target() const noexcept { return target_; }
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  IfExists if_exists_;
  bool committed_ = false;
};

/// Removes from `folder` what an AtomicFile or AtomicFolder of a killed process left behind:
/// entries "*.tmp-PID" whose process is gone.
void remove_abandoned(const std::filesystem::path& folder);

/// A log that grows by whole lines, each with one write, so that a kill never tears one apart; a
/// last line that a crash left without its newline is dropped on opening. Owns the open file.
class AppendFile {
 public:
  explicit AppendFile(const std::filesystem::path& path);

  /// Appends `line` and a newline; `line` holds none itself.
  void line(std::string_view line);
  void sync() { file_.sync(); }
  /// Bytes so far; truncate() goes back to such a size (a resumed run drops later lines).
  std::uint64_t size() const { return file_.size(); }
  void truncate(std::uint64_t size) { file_.truncate(size); }

 private:
  FileDescriptor file_;
};

}  // namespace wgrad::io
