#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace wgrad::gpu {

/// The folder of this user's cache: WGRAD_CACHE_DIR, or "wgrad" in the system's place for caches.
/// Empty where WGRAD_CACHE_DIR is set to nothing, or the system names no place.
std::filesystem::path user_cache_folder();

/// What the driver compiled, kept on disk between runs: a file a key. A cache only: whatever fails
/// (no space, no permission, a torn or foreign file) reads as missing and is written again. Safe
/// for use from several threads and programs at once.
class BlobCache {
 public:
  /// Deletes the oldest files first if the folder holds more than `limit` bytes. An empty folder
  /// name makes a cache that keeps nothing.
  BlobCache(std::filesystem::path folder, uint64_t limit);

  /// The bytes stored under a key, into `into` where it is large enough; their count, 0 if missing.
  size_t load(std::span<const std::byte> key, std::span<std::byte> into) const;
  void store(std::span<const std::byte> key, std::span<const std::byte> value) const;

 private:
  std::filesystem::path file_of(std::span<const std::byte> key) const;
  void prune(uint64_t limit) const;

  std::filesystem::path folder_;
};

}  // namespace wgrad::gpu
