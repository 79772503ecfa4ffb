#include "gpu/blob_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

namespace wgrad::gpu {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::byte>;

constexpr std::array<char, 8> kMagic = {'w', 'g', 'r', 'a', 'd', 'b', 'l', '1'};
constexpr uint64_t kLargestBlob = uint64_t{256} << 20;

/// Stands at the beginning of each file; the key and the value follow.
struct Header {
  std::array<char, 8> magic = kMagic;
  uint64_t key_size = 0, value_size = 0, checksum = 0;
};
static_assert(sizeof(Header) == 32);

/// FNV-1a.
uint64_t hash(Bytes bytes, uint64_t seed) {
  uint64_t h = 0xcbf29ce484222325u ^ seed;
  for (const std::byte byte : bytes) h = (h ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
  return h;
}

uint64_t checksum(Bytes key, Bytes value) { return hash(value, hash(key, 0)); }

/// A name that no other thread or program uses.
std::string unique_suffix() {
  static const uint64_t program = std::random_device()();
  static std::atomic<uint64_t> next{0};
  return fmt::format(".{:x}-{:x}.tmp", program, next++);
}

bool read_exactly(std::ifstream& file, void* into, uint64_t bytes) {
  file.read(static_cast<char*>(into), static_cast<std::streamsize>(bytes));
  return file.good();
}

void write(std::ofstream& file, const void* from, uint64_t bytes) {
  file.write(static_cast<const char*>(from), static_cast<std::streamsize>(bytes));
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

fs::path user_cache_folder() {
  if (const char* own = std::getenv("WGRAD_CACHE_DIR")) return own;
#if defined(_WIN32)
  if (const char* local = environment("LOCALAPPDATA")) return fs::path(local) / "wgrad" / "cache";
#elif defined(__APPLE__)
  if (const char* home = environment("HOME")) return fs::path(home) / "Library/Caches/wgrad";
#else
  if (const char* cache = environment("XDG_CACHE_HOME")) return fs::path(cache) / "wgrad";
  if (const char* home = environment("HOME")) return fs::path(home) / ".cache" / "wgrad";
#endif
  return {};
}

BlobCache::BlobCache(fs::path folder, uint64_t limit) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (!failed) fs::permissions(folder_, fs::perms::owner_all, failed);
  prune(limit);
}

fs::path BlobCache::file_of(Bytes key) const {
  return folder_ / fmt::format("{:016x}{:016x}.blob", hash(key, 0), hash(key, 1));
}

size_t BlobCache::load(Bytes key, std::span<std::byte> into) const {
  if (folder_.empty()) return 0;
  std::ifstream file(file_of(key), std::ios::binary);
  Header header;
  if (!file || !read_exactly(file, &header, sizeof header) || header.magic != kMagic ||
      header.key_size != key.size() || header.value_size > kLargestBlob) {
    return 0;
  }
  std::vector<std::byte> stored(key.size());
  if (!read_exactly(file, stored.data(), stored.size()) ||
      !std::equal(key.begin(), key.end(), stored.begin())) {
    return 0;
  }
  std::vector<std::byte> value(header.value_size);
  if (!read_exactly(file, value.data(), value.size()) || checksum(key, value) != header.checksum) {
    return 0;
  }
  if (into.size() >= value.size()) std::copy(value.begin(), value.end(), into.begin());
  return value.size();
}

void BlobCache::store(Bytes key, Bytes value) const {
  if (folder_.empty() || value.size() > kLargestBlob) return;
  const fs::path target = file_of(key);
  fs::path temporary = target;
  temporary += unique_suffix();
  std::error_code failed;
  {
    std::ofstream file(temporary, std::ios::binary);
    const Header header{kMagic, key.size(), value.size(), checksum(key, value)};
    write(file, &header, sizeof header);
    write(file, key.data(), key.size());
    write(file, value.data(), value.size());
    file.close();
    if (file) fs::rename(temporary, target, failed);
    if (file && !failed) return;
  }
  fs::remove(temporary, failed);
}

void BlobCache::prune(uint64_t limit) const {
  struct File {
    fs::file_time_type written;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<File> files;
  uint64_t total = 0;
  std::error_code failed;
  for (fs::directory_iterator entry(folder_, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const fs::path extension = entry->path().extension();
    if (extension != ".blob" && extension != ".tmp") continue;
    std::error_code gone;
    File file{entry->last_write_time(gone), entry->file_size(gone), entry->path()};
    if (gone) continue;
    total += file.bytes;
    files.push_back(std::move(file));
  }
  if (total <= limit) return;
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.written < b.written; });
  for (const File& file : files) {
    if (total <= limit) return;
    if (fs::remove(file.path, failed)) total -= file.bytes;
  }
}

}  // namespace wgrad::gpu
