#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "wgrad/error.h"

namespace wgrad::io {
namespace {

constexpr std::size_t kHeaderAlignment = 8;

std::uint64_t checked_bytes(const TensorToWrite& tensor, const std::filesystem::path& path) {
  const auto bytes = tensor_bytes(tensor.type, tensor.shape);
  if (!bytes || !safetensors_type(file_type_name(tensor.type))) {
    throw runtime_failure(fmt::format("{}: tensor {}", path.string(), tensor.name),
                          fmt::format("{} {} cannot be stored in safetensors",
                                      file_type_name(tensor.type), shape_text(tensor.shape)),
                          "a plain type and a size that fits into 64 bits");
  }
  return *bytes;
}

// Bytes that are not UTF-8 become U+FFFD: a header must be valid text.
std::string dump(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string header_text(const std::vector<TensorToWrite>& tensors,
                        const std::vector<std::uint64_t>& sizes,
                        const std::map<std::string, std::string>& metadata,
                        const std::filesystem::path& path) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::map<std::string_view, std::size_t> seen;
  std::uint64_t offset = 0;
  std::string text = dump(header);
  text.pop_back();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorToWrite& tensor = tensors[i];
    if (tensor.name == "__metadata__" || !seen.emplace(tensor.name, i).second) {
      throw runtime_failure(path.string(), fmt::format("two entries named {}", tensor.name),
                            "each name once");
    }
    nlohmann::ordered_json entry;
    entry["dtype"] = file_type_name(tensor.type);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {offset, offset + sizes[i]};
    if (text.size() > 1) text += ',';
    text += dump(tensor.name) + ":" + dump(entry);
    offset += sizes[i];
  }
  text += '}';
  while (text.size() % kHeaderAlignment != 0) text += ' ';
  return text;
}

}  // namespace

TensorToWrite tensor_from_bytes(std::string name, FileType type, std::vector<std::int64_t> shape,
                                std::span<const std::byte> bytes) {
  return {std::move(name), type, std::move(shape), [bytes](const ByteSink& sink) { sink(bytes); }};
}

void write_safetensors(const std::filesystem::path& path, std::vector<TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const TensorToWrite& a, const TensorToWrite& b) {
                     return block_bytes(a.type) > block_bytes(b.type);
                   });
  std::vector<std::uint64_t> sizes;
  for (const TensorToWrite& tensor : tensors) sizes.push_back(checked_bytes(tensor, path));
  const std::string header = header_text(tensors, sizes, metadata, path);

  AtomicFile file(path);
  const std::uint64_t length = header.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::uint64_t written = 0;
    tensors[i].produce([&](std::span<const std::byte> bytes) {
      written += bytes.size();
      if (written <= sizes[i]) file.write(bytes);
    });
    if (written != sizes[i]) {
      throw runtime_failure(fmt::format("{}: tensor {}", path.string(), tensors[i].name),
                            fmt::format("{} bytes were produced", written),
                            fmt::format("{} bytes", sizes[i]));
    }
  }
  file.commit();
}

}  // namespace wgrad::io
