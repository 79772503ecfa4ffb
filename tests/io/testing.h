#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

#include "wgrad/error.h"

/// What the tests of src/io share.
namespace wgrad::io {

namespace fs = std::filesystem;

/// Owns a new folder for one test and removes it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "wgrad-io-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  fs::path operator/(std::string_view name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

  /// Writes a file and gives its path.
  fs::path file(std::string_view name, std::string_view content) const {
    const fs::path path = path_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

 private:
  fs::path path_;
};

inline std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline fs::path test_data(std::string_view name) { return fs::path(WGRAD_TEST_DATA) / "io" / name; }

/// The error that `action` must throw, of this kind and with all these parts in its text.
inline void expect_error(ErrorKind kind, std::initializer_list<std::string_view> parts,
                         const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string_view part : parts) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::string(part)));
    }
    return;
  }
  ADD_FAILURE() << "no error was thrown";
}

inline void expect_input_error(std::initializer_list<std::string_view> parts,
                               const std::function<void()>& action) {
  expect_error(ErrorKind::kInput, parts, action);
}

/// The bytes of a little-endian number.
template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

/// A safetensors file of this header and data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return raw<std::uint64_t>(header.size()) + std::string(header) + std::string(data);
}

}  // namespace wgrad::io
