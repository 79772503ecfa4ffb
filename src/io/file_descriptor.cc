#include "io/file_descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace wgrad::io {
namespace {

std::string_view advice(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "free space on this disk or choose a folder on another one";
    case EROFS:
      return "choose a folder on a disk that can be written";
    case EACCES:
    case EPERM:
      return "check the permissions of the file and of its folder";
    case ENOENT:
      return "check the path";
    case ENOTDIR:
      return "a part of the path is a file; check the path";
    case EEXIST:
    case ENOTEMPTY:
      return "choose another name or remove what is there";
    case EISDIR:
      return "give the path of a file";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EFBIG:
      return "raise the limit of a file's size (ulimit -f) or choose another disk";
    case EIO:
      return "check the disk";
    default:
      return {};
  }
}

// macOS and some network disks limit one call to 2^31 - 1 bytes.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;

int open_retrying(const std::filesystem::path& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

Error disk_error(const std::filesystem::path& path, std::string_view doing, int error_number,
                 ErrorKind kind) {
  return Error(
      kind, path.string(),
      fmt::format("cannot {}: {} (errno {})", doing, std::strerror(error_number), error_number), {},
      advice(error_number));
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

FileDescriptor FileDescriptor::open_input(const std::filesystem::path& path) {
  FileDescriptor file(open_retrying(path, O_RDONLY), path);
  if (file.fd_ < 0) throw disk_error(path, "open", errno, ErrorKind::kInput);
  if (S_ISDIR(file.mode())) throw disk_error(path, "open", EISDIR, ErrorKind::kInput);
  return file;
}

FileDescriptor FileDescriptor::open_plain_file(const std::filesystem::path& path) {
  FileDescriptor file(open_retrying(path, O_RDONLY | O_NONBLOCK), path);
  if (file.fd_ < 0) throw disk_error(path, "open", errno, ErrorKind::kInput);
  const unsigned mode = file.mode();
  if (S_ISDIR(mode)) throw disk_error(path, "open", EISDIR, ErrorKind::kInput);
  if (!S_ISREG(mode)) {
    throw input_error(path.string(), "this is no plain file", "neither a pipe nor a device",
                      "give the path of a file on a disk");
  }
  return file;
}

unsigned FileDescriptor::mode() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) throw disk_error(path_, "open", errno, ErrorKind::kInput);
  return status.st_mode;
}

FileDescriptor FileDescriptor::create(const std::filesystem::path& path) {
  FileDescriptor file(open_retrying(path, O_WRONLY | O_CREAT | O_TRUNC), path);
  if (file.fd_ < 0) throw disk_error(path, "create", errno);
  return file;
}

FileDescriptor FileDescriptor::open_append(const std::filesystem::path& path) {
  FileDescriptor file(open_retrying(path, O_RDWR | O_CREAT | O_APPEND), path);
  if (file.fd_ < 0) throw disk_error(path, "open for appending", errno);
  return file;
}

std::size_t FileDescriptor::read_some(std::span<char> out) {
  while (true) {
    const ssize_t n = ::read(fd_, out.data(), std::min(out.size(), kMaxTransfer));
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) throw disk_error(path_, "read", errno);
  }
}

void FileDescriptor::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), kMaxTransfer));
    if (n > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (n == 0) {
      throw disk_error(path_, "write", ENOSPC);
    } else if (errno != EINTR) {
      throw disk_error(path_, "write", errno);
    }
  }
}

void FileDescriptor::sync() {
  // EINVAL and ENOTSUP: a pipe or a disk that has nothing to flush.
  while (::fsync(fd_) != 0) {
    if (errno == EINVAL || errno == ENOTSUP) return;
    if (errno != EINTR) throw disk_error(path_, "flush", errno);
  }
}

std::uint64_t FileDescriptor::size() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) throw disk_error(path_, "read the size", errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void FileDescriptor::truncate(std::uint64_t size) {
  while (::ftruncate(fd_, static_cast<off_t>(size)) != 0) {
    if (errno != EINTR) throw disk_error(path_, "shorten", errno);
  }
}

void FileDescriptor::close() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) throw disk_error(path_, "write", errno);
}

void FileDescriptor::reset() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void sync_folder(const std::filesystem::path& folder) {
  FileDescriptor file(open_retrying(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY), folder);
  if (file.get() < 0) throw disk_error(folder, "open", errno);
  file.sync();
}

}  // namespace wgrad::io
