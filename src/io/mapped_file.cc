#include "io/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/lfs_pointer.h"
#include "io/file_descriptor.h"

namespace wgrad::io {

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const FileDescriptor file = FileDescriptor::open_plain_file(path);
  MappedFile mapped;
  mapped.path_ = path;
  const auto size = static_cast<std::size_t>(file.size());
  if (size == 0) return mapped;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) throw disk_error(path, "map into memory", errno);
  mapped.data_ = static_cast<const std::byte*>(data);
  mapped.size_ = size;
  refuse_lfs_pointer(path.string(), {reinterpret_cast<const char*>(mapped.data_), size});
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    path_ = std::move(other.path_);
  }
  return *this;
}

MappedFile::~MappedFile() { reset(); }

void MappedFile::release(std::size_t offset, std::size_t size) const noexcept {
  if (offset > size_) return;
  const std::size_t end = size < size_ - offset ? offset + size : size_;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t first = (offset + page - 1) / page * page;
  const std::size_t last = end == size_ ? end : end / page * page;
  if (first >= last) return;
  ::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

void MappedFile::release(std::span<const std::byte> part) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(data_);
  const auto at = reinterpret_cast<std::uintptr_t>(part.data());
  if (at < begin || at - begin > size_) return;
  release(at - begin, part.size());
}

void MappedFile::reset() noexcept {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
  size_ = 0;
}

}  // namespace wgrad::io
