#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "io/file_descriptor.h"

namespace wgrad::io {

/// CRC-32C (Castagnoli) of bytes.
uint32_t crc32c(std::string_view bytes);

/// A record in TensorFlow's framing: its length (8 bytes), the length's masked CRC-32C, the
/// payload and its masked CRC-32C, all little-endian.
std::string frame_record(std::string_view payload);

/// The payload of the record that `bytes` begin with; nothing where it is torn or damaged.
std::optional<std::string_view> first_record(std::string_view bytes);
/// What the framing adds to a payload.
inline constexpr uint64_t kRecordFrameBytes = 16;

/// A new file of such records, each written whole. Owns the open file.
class RecordFile {
 public:
  explicit RecordFile(const std::filesystem::path& path) : file_(FileDescriptor::create(path)) {}
  void write(std::string_view payload);

 private:
  FileDescriptor file_;
};

}  // namespace wgrad::io
