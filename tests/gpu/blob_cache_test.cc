#include "gpu/blob_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace wgrad::gpu {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// What a cache holds under a key; empty where it is missing.
std::string load(const BlobCache& cache, const std::string& key) {
  std::string value(cache.load(bytes(key), {}), '\0');
  const size_t read =
      cache.load(bytes(key), std::as_writable_bytes(std::span(value.data(), value.size())));
  EXPECT_EQ(read, value.size());
  return value;
}

class BlobCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "wgrad-blobs-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path());
    return found;
  }
  BlobCache open(uint64_t limit = 1 << 20) const { return BlobCache(folder_, limit); }

  fs::path folder_;
};

TEST_F(BlobCacheTest, KeepsWhatWasStoredFromRunToRun) {
  const std::string value("a\0b", 3);
  open().store(bytes("key"), bytes(value));
  EXPECT_EQ(load(open(), "key"), value);
  EXPECT_EQ(load(open(), "another"), "");
  open().store(bytes("key"), bytes("newer"));
  EXPECT_EQ(load(open(), "key"), "newer");
  EXPECT_EQ(files().size(), 1u) << "no temporary file stays";
}

TEST_F(BlobCacheTest, LeavesABufferAloneThatIsTooSmall) {
  const BlobCache cache = open();
  cache.store(bytes("key"), bytes("value"));
  std::string small(4, 'x');
  EXPECT_EQ(cache.load(bytes("key"), std::as_writable_bytes(std::span(small.data(), 4))), 5u);
  EXPECT_EQ(small, "xxxx");
}

TEST_F(BlobCacheTest, ReadsADamagedFileAsMissing) {
  const BlobCache cache = open();
  cache.store(bytes("key"), bytes("value of some length"));
  const fs::path file = files().at(0);
  const auto whole = fs::file_size(file);
  for (uintmax_t at = 0; at < whole; ++at) {
    cache.store(bytes("key"), bytes("value of some length"));
    {
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekg(static_cast<std::streamoff>(at));
      const char flipped = static_cast<char>(stream.get() ^ 0x40);
      stream.seekp(static_cast<std::streamoff>(at));
      stream.put(flipped);
    }
    EXPECT_EQ(load(cache, "key"), "") << "byte " << at;
    fs::resize_file(file, at);
    EXPECT_EQ(load(cache, "key"), "") << "cut at byte " << at;
  }
  cache.store(bytes("key"), bytes("again"));
  EXPECT_EQ(load(cache, "key"), "again");
}

TEST_F(BlobCacheTest, DeletesTheOldestFilesBeyondItsLimit) {
  const std::string value(1000, 'v');
  for (int i = 0; i < 5; ++i) {
    open().store(bytes("key" + std::to_string(i)), bytes(value));
    for (const fs::path& file : files()) {
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(1));
    }
  }
  const BlobCache cache = open(2500);
  EXPECT_EQ(load(cache, "key0"), "");
  EXPECT_EQ(load(cache, "key2"), "");
  EXPECT_EQ(load(cache, "key3"), value);
  EXPECT_EQ(load(cache, "key4"), value);
}

TEST_F(BlobCacheTest, NeverTouchesForeignFiles) {
  std::ofstream(folder_ / "notes.txt") << std::string(5000, 'n');
  open(100).store(bytes("key"), bytes("value"));
  open(0);
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(files()[0].filename(), "notes.txt");
}

TEST_F(BlobCacheTest, WorksWithoutAFolder) {
  const BlobCache none({}, 0);
  none.store(bytes("key"), bytes("value"));
  EXPECT_EQ(load(none, "key"), "");
  std::ofstream(folder_ / "file") << "x";
  const BlobCache refused(folder_ / "file" / "below", 0);
  refused.store(bytes("key"), bytes("value"));
  EXPECT_EQ(load(refused, "key"), "");
}

TEST_F(BlobCacheTest, ServesThreadsAtOnce) {
  const BlobCache cache = open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      const std::string value(500 + static_cast<size_t>(t), static_cast<char>('a' + t));
      for (int i = 0; i < 50; ++i) {
        cache.store(bytes("key"), bytes(value));
        std::string seen(4096, '\0');
        const size_t size =
            cache.load(bytes("key"), std::as_writable_bytes(std::span(seen.data(), seen.size())));
        ASSERT_GE(size, 500u);
        ASSERT_EQ(seen.substr(0, size), std::string(size, seen[0]));
        ASSERT_EQ(size, 500u + static_cast<size_t>(seen[0] - 'a'));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(BlobCacheTest, FollowsTheEnvironmentToTheUsersFolder) {
  const char* before = std::getenv("WGRAD_CACHE_DIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("WGRAD_CACHE_DIR", folder_.c_str(), 1);
  EXPECT_EQ(user_cache_folder(), folder_);
  setenv("WGRAD_CACHE_DIR", "", 1);
  EXPECT_TRUE(user_cache_folder().empty());
  unsetenv("WGRAD_CACHE_DIR");
  EXPECT_EQ(user_cache_folder().filename(), "wgrad");
  if (before != nullptr) setenv("WGRAD_CACHE_DIR", kept.c_str(), 1);
}

}  // namespace
}  // namespace wgrad::gpu
