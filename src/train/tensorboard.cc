#include "train/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "io/file_descriptor.h"
#include "io/mapped_file.h"

namespace wgrad::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostSeconds = 9'999'999'999;  // ten digits
constexpr std::string_view kPrefix = "events.out.tfevents.";

// Protocol buffers: the fields of tensorflow.Event and Summary that a scalar needs.
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5;  // Event
constexpr uint32_t kValue = 1;                                                // Summary
constexpr uint32_t kTag = 1, kSimpleValue = 2;                                // Summary.Value
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, uint32_t field, WireType type) {
  put_varint(out, field << 3 | type);
}

template <typename T>
void put_fixed(std::string& out, T bits) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(bits >> (8 * i) & 0xFF);
}

void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_now() {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  put_key(event, kWallTime, kFixed64);
  put_fixed(event, std::bit_cast<uint64_t>(now.count()));
  return event;
}

uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if ((byte & 0x80) == 0) break;
  }
  return value;
}

/// The step of an event; 0 where it has none.
int64_t step_of(std::string_view event) {
  while (!event.empty()) {
    const uint64_t key = take_varint(event);
    if (key == (kStep << 3 | kVarint)) return static_cast<int64_t>(take_varint(event));
    uint64_t skipped = 0;
    if ((key & 7) == kVarint) {
      take_varint(event);
    } else {
      skipped = (key & 7) == kBytes ? take_varint(event) : (key & 7) == kFixed64 ? 8 : 4;
    }
    event.remove_prefix(std::min<uint64_t>(skipped, event.size()));
  }
  return 0;
}

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const bool named = entry.path().filename().string().starts_with(kPrefix);
    if (named && entry.is_regular_file(error)) files.push_back(entry.path());
  }
  return files;
}

/// TensorBoard reads the files of a folder in the order of their names, which begin with the time.
std::string new_name(const fs::path& folder) {
  int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  for (const fs::path& file : event_files(folder)) {
    const std::string time = file.filename().string().substr(kPrefix.size());
    const int64_t other = std::strtoll(time.c_str(), nullptr, 10);
    if (other < kMostSeconds) seconds = std::max(seconds, other + 1);
  }
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == 0) host = {"host"};
  return fmt::format("{}{:010}.{}.{}.0", kPrefix, seconds, host.data(), ::getpid());
}

/// The bytes of the events up to the first that lies after the step or is not whole.
uint64_t bytes_until(const io::MappedFile& file, int64_t step) {
  const std::span<const std::byte> bytes = file.bytes();
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (const auto event = io::first_record(rest)) {
    if (step_of(*event) > step) break;
    rest.remove_prefix(event->size() + io::kRecordFrameBytes);
  }
  return bytes.size() - rest.size();
}

}  // namespace

void TensorBoard::write(const StepMetrics& m) {
  write(m.step, {{"train/loss", m.loss},
                 {"train/lr", m.lr},
                 {"train/grad_norm", m.grad_norm},
                 {"train/tokens_per_second", m.tokens_per_second},
                 {"train/peak_memory_gb", static_cast<double>(m.peak_memory_bytes) / 1e9}});
}

void TensorBoard::write(const EvalMetrics& m) { write(m.step, {{"eval/loss", m.loss}}); }

void TensorBoard::write(int64_t step, std::initializer_list<Scalar> scalars) {
  if (!file_) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) {
      throw runtime_failure(folder_.string(), "could not be made: " + error.message(), {},
                            "check the folder's permissions and the disk's free space");
    }
    file_.emplace(folder_ / new_name(folder_));
    std::string version = event_now();
    put_bytes(version, kFileVersion, "brain.Event:2");
    file_->write(version);
  }
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, kTag, tag);
    put_key(value, kSimpleValue, kFixed32);
    put_fixed(value, std::bit_cast<uint32_t>(static_cast<float>(number)));
    put_bytes(summary, kValue, value);
  }
  std::string event = event_now();
  put_key(event, kStep, kVarint);
  put_varint(event, static_cast<uint64_t>(step));
  put_bytes(event, kSummary, summary);
  file_->write(event);
}

void TensorBoard::keep_until(int64_t step) const {
  for (const fs::path& path : event_files(folder_)) {
    const uint64_t kept = bytes_until(io::MappedFile::open(path), step);
    if (kept == fs::file_size(path)) continue;
    io::FileDescriptor::open_append(path).truncate(kept);
  }
}

}  // namespace wgrad::train
