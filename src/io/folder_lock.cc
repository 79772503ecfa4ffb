#include "io/folder_lock.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

namespace wgrad::io {
namespace {

constexpr std::size_t kMostDigits = 20;
constexpr int kMostTries = 10;

/// Whether the name still leads to the open file: its last holder may have removed it meanwhile.
bool is_current(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file.get(), &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/// What the holder wrote; empty where it is no number.
std::string holder_of(const FileDescriptor& file) {
  std::array<char, kMostDigits> text;
  const ssize_t n = ::pread(file.get(), text.data(), text.size(), 0);
  const std::string_view read(text.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  const std::string_view digits = read.substr(0, read.find('\n'));
  const bool number = digits.find_first_not_of("0123456789") == std::string_view::npos;
  return number ? std::string(digits) : std::string();
}

[[noreturn]] void refuse(const std::filesystem::path& folder, const std::string& process) {
  throw input_error(
      folder.string(),
      process.empty() ? "another process writes into this folder"
                      : fmt::format("another process ({}) writes into this folder", process),
      "one at a time",
      process.empty()
          ? "wait for its end or choose another folder"
          : fmt::format("wait for its end, stop it (kill {}), or choose another folder", process));
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder) : path_(folder / ".lock") {
  for (int i = 0; i < kMostTries; ++i) {
    file_ = FileDescriptor::open_append(path_);
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      refuse(folder, holder_of(file_));
    }
    if (is_current(file_, path_)) break;
  }
  // The number is a courtesy to the one who is refused: a full disk must not end the run here.
  const std::string process = fmt::format("{}\n", ::getpid());
  [[maybe_unused]] const bool written =
      ::ftruncate(file_.get(), 0) == 0 && ::write(file_.get(), process.data(), process.size()) > 0;
}

FolderLock::~FolderLock() { ::unlink(path_.c_str()); }

}  // namespace wgrad::io
