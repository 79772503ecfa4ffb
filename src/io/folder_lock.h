#pragma once

#include <filesystem>

#include "io/file_descriptor.h"

namespace wgrad::io {

/// Keeps other processes from writing into a folder: holds its file ".lock" locked and removes it
/// at the end. The system releases the lock of a process that is killed. Where the file system
/// knows no locks, nothing is kept out.
class FolderLock {
 public:
  /// An input error that names the other process where the folder is locked already.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace wgrad::io
