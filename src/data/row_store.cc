#include "data/row_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "wgrad/error.h"

namespace wgrad::data {
namespace {

constexpr uint32_t kCounted = uint32_t{1} << 31;

std::filesystem::path spill_folder() {
  const char* chosen = std::getenv("TMPDIR");
  if (chosen && *chosen) return chosen;
  // Unlike /tmp, which often lies in memory.
  std::error_code error;
  if (std::filesystem::is_directory("/var/tmp", error)) return "/var/tmp";
  return "/tmp";
}

size_t memory_for_rows() {
  constexpr size_t kUsual = size_t{64} << 20;
  const char* given = std::getenv("WGRAD_ROW_MEMORY");
  if (given == nullptr || *given == '\0') return kUsual;
  const std::string_view text = given;
  size_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error == std::errc() && end == text.data() + text.size()) return bytes;
  throw input_error("WGRAD_ROW_MEMORY", fmt::format("\"{}\"", text),
                    "expected how many bytes of rows may be kept in memory, in digits",
                    "give a number, or take it out of the environment");
}

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view doing, int error) {
  throw runtime_failure(path.string(),
                        fmt::format("the tokens of the data cannot be {} ({})", doing,
                                    std::generic_category().message(error)),
                        "four bytes a token are needed there",
                        "name a folder with room in the environment: TMPDIR=FOLDER");
}

io::FileDescriptor open_unnamed_file() {
  const std::filesystem::path folder = spill_folder();
  std::string name = (folder / "wgrad-tokens-XXXXXX").string();
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) fail(folder, "put there", errno);
  ::unlink(name.c_str());
  return {fd, folder};
}

void write_all(const io::FileDescriptor& file, std::span<const uint32_t> tokens) {
  const char* at = reinterpret_cast<const char*>(tokens.data());
  size_t left = tokens.size_bytes();
  while (left > 0) {
    const ssize_t n = ::write(file.get(), at, std::min(left, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(file.path(), "written", n < 0 ? errno : ENOSPC);
    at += n;
    left -= static_cast<size_t>(n);
  }
}

void read_all(const io::FileDescriptor& file, uint64_t begin, std::span<uint32_t> tokens) {
  char* at = reinterpret_cast<char*>(tokens.data());
  size_t left = tokens.size_bytes();
  auto offset = static_cast<off_t>(begin * sizeof(uint32_t));
  while (left > 0) {
    const ssize_t n = ::pread(file.get(), at, std::min(left, size_t{1} << 30), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(file.path(), "read back", n < 0 ? errno : EIO);
    at += n;
    offset += n;
    left -= static_cast<size_t>(n);
  }
}

}  // namespace

int64_t Row::counted_tokens() const {
  return ids.empty() ? 0 : std::count(counted.begin() + 1, counted.end(), uint8_t{1});
}

RowStore::RowStore() : RowStore(memory_for_rows()) {}

RowStore::RowStore(size_t memory_bytes) : memory_tokens_(memory_bytes / sizeof(uint32_t)) {}

void RowStore::add(const Row& row) {
  for (size_t i = 0; i < row.ids.size(); ++i) {
    if (row.ids[i] >= kCounted) {
      throw input_error(row.where.empty() ? "a row" : row.where,
                        fmt::format("token {} of the row is {}", i, row.ids[i]),
                        "expected ids below 2^31", "use the tokenizer that belongs to the model");
    }
    recent_.push_back(row.ids[i] | (row.counted[i] ? kCounted : 0));
  }
  begins_.push_back(spilled_ + recent_.size());
  if (recent_.size() > memory_tokens_) spill();
}

void RowStore::spill() {
  if (file_.get() < 0) file_ = open_unnamed_file();
  write_all(file_, recent_);
  spilled_ += recent_.size();
  recent_.clear();
}

int64_t RowStore::tokens(int64_t row) const {
  const auto i = static_cast<size_t>(row);
  const auto whole = static_cast<int64_t>(begins_[i + 1] - begins_[i]);
  return most_ > 0 ? std::min(whole, most_) : whole;
}

std::vector<int64_t> RowStore::lengths() const {
  std::vector<int64_t> lengths(static_cast<size_t>(size()));
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = tokens(static_cast<int64_t>(i));
  return lengths;
}

Row RowStore::row(int64_t row) const {
  const uint64_t begin = begins_[static_cast<size_t>(row)];
  Row out;
  out.ids.resize(static_cast<size_t>(tokens(row)));
  if (begin < spilled_) {
    read_all(file_, begin, out.ids);
  } else {
    std::copy_n(recent_.begin() + static_cast<std::ptrdiff_t>(begin - spilled_), out.ids.size(),
                out.ids.begin());
  }
  out.counted.resize(out.ids.size());
  for (size_t i = 0; i < out.ids.size(); ++i) {
    out.counted[i] = out.ids[i] >= kCounted;
    out.ids[i] &= ~kCounted;
  }
  return out;
}

}  // namespace wgrad::data
