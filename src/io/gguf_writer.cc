#include "io/gguf_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/atomic_file.h"
#include "io/free_space.h"
#include "io/gguf_format.h"
#include "wgrad/error.h"

namespace wgrad::io {
namespace {

constexpr std::uint32_t kVersion = 3;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

std::uint64_t size_of(const TensorToWrite& tensor) {
  const auto bytes = tensor_bytes(tensor.type, tensor.shape);
  if (!bytes || !ggml_number(tensor.type)) {
    throw runtime_failure(fmt::format("tensor {}", tensor.name),
                          fmt::format("{} {} cannot be stored in GGUF", file_type_name(tensor.type),
                                      shape_text(tensor.shape)),
                          "a type of ggml and rows of whole blocks");
  }
  return *bytes;
}

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_text(std::string& out, std::string_view text) {
  put<std::uint64_t>(out, text.size());
  out += text;
}

}  // namespace

template <typename T>
void GgufWriter::append(T value) {
  put(keys_, value);
}

void GgufWriter::append_text(std::string_view value) { put_text(keys_, value); }

void GgufWriter::append_bytes(std::span<const std::byte> bytes) {
  keys_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

bool GgufWriter::begin_key(std::string_view key, std::uint32_t type) {
  if (!seen_.emplace(key).second) return false;
  append_text(key);
  append(type);
  return true;
}

void GgufWriter::text(std::string_view key, std::string_view value) {
  if (begin_key(key, kGgufString)) append_text(value);
}

void GgufWriter::number(std::string_view key, std::uint32_t value) {
  if (begin_key(key, kGgufUint32)) append(value);
}

void GgufWriter::fraction(std::string_view key, float value) {
  if (begin_key(key, kGgufFloat32)) append(value);
}

void GgufWriter::flag(std::string_view key, bool value) {
  if (begin_key(key, kGgufBoolean)) append(static_cast<std::uint8_t>(value));
}

void GgufWriter::texts(std::string_view key, std::span<const std::string> values) {
  if (!begin_key(key, kGgufArray)) return;
  append<std::uint32_t>(kGgufString);
  append<std::uint64_t>(values.size());
  for (const std::string& value : values) append_text(value);
}

template <typename T>
void GgufWriter::append_array(std::string_view key, std::uint32_t type, std::span<const T> values) {
  if (!begin_key(key, kGgufArray)) return;
  append(type);
  append<std::uint64_t>(values.size());
  append_bytes(std::as_bytes(values));
}

void GgufWriter::numbers(std::string_view key, std::span<const std::int32_t> values) {
  append_array(key, kGgufInt32, values);
}

void GgufWriter::fractions(std::string_view key, std::span<const float> values) {
  append_array(key, kGgufFloat32, values);
}

void GgufWriter::raw(std::string_view key, std::span<const std::byte> type_and_value) {
  if (!seen_.emplace(key).second) return;
  append_text(key);
  append_bytes(type_and_value);
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  put(out, kVersion);
  put<std::uint64_t>(out, tensors_.size());
  put<std::uint64_t>(out, seen_.size());
  out += keys_;
  std::uint64_t offset = 0;
  std::unordered_set<std::string_view> names;
  for (const TensorToWrite& tensor : tensors_) {
    if (!names.insert(tensor.name).second) {
      throw runtime_failure("GGUF", fmt::format("two tensors named {}", tensor.name),
                            "each name once");
    }
    put_text(out, tensor.name);
    put(out, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
      put(out, static_cast<std::uint64_t>(*size));
    }
    put(out, *ggml_number(tensor.type));
    put(out, offset);
    offset += aligned(size_of(tensor));
  }
  out.resize(aligned(out.size()));
  return out;
}

std::uint64_t GgufWriter::file_size() const {
  std::uint64_t bytes = 0;
  for (const TensorToWrite& tensor : tensors_) bytes += aligned(size_of(tensor));
  return bytes + header().size();
}

void GgufWriter::write(const std::filesystem::path& path) const {
  check_free_space(path, file_size());
  AtomicFile file(path);
  file.write(header());
  for (const TensorToWrite& tensor : tensors_) {
    const std::uint64_t size = size_of(tensor);
    std::uint64_t written = 0;
    tensor.produce([&](std::span<const std::byte> bytes) {
      written += bytes.size();
      if (written <= size) file.write(bytes);
    });
    if (written != size) {
      throw runtime_failure(fmt::format("{}: tensor {}", path.string(), tensor.name),
                            fmt::format("{} bytes were produced", written),
                            fmt::format("{} bytes", size));
    }
    file.write(std::string(aligned(size) - size, '\0'));
  }
  file.commit();
}

}  // namespace wgrad::io
