#include "io/record_file.h"

#include <array>
#include <span>

namespace wgrad::io {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}

/// A CRC of data that holds CRCs is weak, so the framing stores them changed.
uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }

template <typename T>
std::string little_endian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

template <typename T>
T read_little_endian(std::string_view bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

bool has_crc(std::string_view bytes, std::string_view stored) {
  return masked(crc32c(bytes)) == read_little_endian<uint32_t>(stored);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_table();
  uint32_t crc = ~0u;
  for (const char c : bytes)
    crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::string frame_record(std::string_view payload) {
  std::string record = little_endian<uint64_t>(payload.size());
  record += little_endian(masked(crc32c(record)));
  record += payload;
  record += little_endian(masked(crc32c(payload)));
  return record;
}

std::optional<std::string_view> first_record(std::string_view bytes) {
  if (bytes.size() < kRecordFrameBytes) return std::nullopt;
  const auto size = read_little_endian<uint64_t>(bytes);
  if (!has_crc(bytes.substr(0, 8), bytes.substr(8, 4)) || size > bytes.size() - kRecordFrameBytes) {
    return std::nullopt;
  }
  const std::string_view payload = bytes.substr(12, size);
  if (!has_crc(payload, bytes.substr(12 + size, 4))) return std::nullopt;
  return payload;
}

void RecordFile::write(std::string_view payload) {
  const std::string record = frame_record(payload);
  file_.write_all(std::as_bytes(std::span(record)));
}

}  // namespace wgrad::io
