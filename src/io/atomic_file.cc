#include "io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include "wgrad/error.h"

namespace wgrad::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporaryMark = ".tmp-";

// An absolute path without a trailing slash, so that it has a name and a parent.
fs::path settled(const fs::path& path) {
  if (path.empty()) {
    throw input_error("output", "its path is empty", "expected a file or folder to write");
  }
  fs::path absolute = fs::absolute(path).lexically_normal();
  return absolute.has_filename() ? absolute : absolute.parent_path();
}

fs::path temporary_for(const fs::path& target) {
  fs::path temporary = target;
  temporary += fmt::format("{}{}", kTemporaryMark, ::getpid());
  return temporary;
}

// Puts `temporary` in the place of the folder `target` and leaves the old one under the
// temporary's name. At no moment is there nothing under the target's name, where the system can.
void exchange(const fs::path& temporary, const fs::path& target) {
#ifdef RENAME_EXCHANGE
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    return;
  }
  if (errno != EINVAL && errno != ENOSYS) throw disk_error(target, "replace", errno);
#endif
  fs::path old = temporary;
  old += "-old";
  if (::rename(target.c_str(), old.c_str()) != 0 ||
      ::rename(temporary.c_str(), target.c_str()) != 0 ||
      ::rename(old.c_str(), temporary.c_str()) != 0) {
    throw disk_error(target, "replace", errno);
  }
}

void sync_tree(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_symlink()) continue;
    if (entry.is_directory()) {
      sync_folder(entry.path());
    } else if (entry.is_regular_file()) {
      FileDescriptor::open_input(entry.path()).sync();
    }
  }
  sync_folder(folder);
}

// The process number at the end of "*.tmp-PID", or 0.
pid_t owner_of(const std::string& name) {
  const std::size_t mark = name.rfind(kTemporaryMark);
  if (mark == std::string::npos) return 0;
  const char* begin = name.data() + mark + kTemporaryMark.size();
  const char* end = name.data() + name.size();
  pid_t pid = 0;
  const auto [stop, error] = std::from_chars(begin, end, pid);
  return error == std::errc() && stop == end && pid > 0 ? pid : 0;
}

}  // namespace

AtomicFile::AtomicFile(fs::path target)
    : target_(settled(target)),
      temporary_(temporary_for(target_)),
      file_(FileDescriptor::create(temporary_)) {}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) { file_.write_all(bytes); }
void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  file_.sync();
  file_.close();
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    throw disk_error(target_, "write", errno);
  }
  committed_ = true;
  sync_folder(target_.parent_path());
}

void write_file_atomically(const fs::path& target, std::string_view text) {
  AtomicFile file(target);
  file.write(text);
  file.commit();
}

AtomicFolder::AtomicFolder(fs::path target, IfExists if_exists)
    : target_(settled(target)), temporary_(temporary_for(target_)), if_exists_(if_exists) {
  std::error_code error;
  if (if_exists == IfExists::kRefuse && fs::exists(target_, error) &&
      !(fs::is_directory(target_, error) && fs::is_empty(target_, error))) {
    throw input_error(target_.string(), "it exists already", "a new or an empty folder",
                      "choose another name or remove what is there");
  }
  fs::remove_all(temporary_, error);
  if (::mkdir(temporary_.c_str(), 0777) != 0) throw disk_error(target_, "create", errno);
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void AtomicFolder::commit() {
  try {
    sync_tree(temporary_);
  } catch (const fs::filesystem_error& error) {
    throw disk_error(error.path1(), "flush", error.code().value());
  }
  std::error_code error;
  const bool replace = if_exists_ == IfExists::kReplace && fs::exists(target_, error);
  if (replace) {
    exchange(temporary_, target_);
  } else if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    throw disk_error(target_, "create", errno);
  }
  committed_ = true;
  sync_folder(target_.parent_path());
  if (replace) fs::remove_all(temporary_, error);
}

void remove_abandoned(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const pid_t owner = owner_of(entry.path().filename().string());
    if (owner == 0 || ::kill(owner, 0) == 0 || errno != ESRCH) continue;
    std::error_code ignored;
    fs::remove_all(entry.path(), ignored);
  }
}

AppendFile::AppendFile(const fs::path& path) : file_(FileDescriptor::open_append(path)) {
  const std::uint64_t size = file_.size();
  std::uint64_t kept = size;
  std::array<char, 4096> part;
  while (kept > 0) {
    const std::uint64_t begin = kept > part.size() ? kept - part.size() : 0;
    const ssize_t n = ::pread(file_.get(), part.data(), kept - begin, static_cast<off_t>(begin));
    if (n != static_cast<ssize_t>(kept - begin))
      throw disk_error(path, "read", n < 0 ? errno : EIO);
    const std::size_t newline = std::string_view(part.data(), n).rfind('\n');
    if (newline != std::string_view::npos) {
      kept = begin + newline + 1;
      break;
    }
    kept = begin;
  }
  if (kept != size) file_.truncate(kept);
}

void AppendFile::line(std::string_view line) {
  const std::uint64_t before = file_.size();
  std::string text(line);
  text.push_back('\n');
  try {
    file_.write_all(std::as_bytes(std::span(text)));
  } catch (...) {
    // A full disk may have taken a part of the line.
    [[maybe_unused]] const int ignored = ::ftruncate(file_.get(), static_cast<off_t>(before));
    throw;
  }
}

}  // namespace wgrad::io
