#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/json.h"
#include "wgrad/error.h"

namespace wgrad::io {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation
constexpr std::size_t kMaxHeaderDepth = 8;
constexpr std::string_view kFetchAgain = "fetch or write the file again";

// The header's text; what follows it are the tensors' bytes.
std::string_view header_text(const MappedFile& file) {
  const std::string where = file.path().string();
  const std::uint64_t size = file.size();
  if (size < 8) {
    throw input_error(where, fmt::format("the file has {} bytes", size),
                      "a safetensors file begins with an 8-byte header length", kFetchAgain);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.bytes().data(), sizeof(length));
  if (length > kMaxHeaderBytes) {
    throw input_error(where, fmt::format("the header is said to be {} bytes long", length),
                      fmt::format("at most {} bytes", kMaxHeaderBytes),
                      "check that this is a safetensors file");
  }
  if (length > size - 8) {
    throw input_error(where,
                      fmt::format("the header is said to be {} bytes long but the file ends after "
                                  "{} of them",
                                  length, size - 8),
                      "a complete file", kFetchAgain);
  }
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()) + 8, length);
  if (text.empty() || text.front() != '{') {
    throw input_error(where, "the header does not begin with '{'", "a safetensors header",
                      "check that this is a safetensors file");
  }
  return text;
}

std::uint64_t unsigned_value(const json& value, const std::string& where, std::string_view field) {
  if (!value.is_number_unsigned()) {
    throw input_error(where, fmt::format("{} holds what is no whole number from 0", field),
                      "whole numbers", kFetchAgain);
  }
  return value.get<std::uint64_t>();
}

const json& field(const json& entry, const char* name, const std::string& where) {
  const auto found = entry.find(name);
  if (found == entry.end()) {
    throw input_error(where, fmt::format("the header gives no {}", name),
                      "dtype, shape and data_offsets", kFetchAgain);
  }
  return *found;
}

FileType entry_type(const json& entry, const std::string& where) {
  const json& name = field(entry, "dtype", where);
  if (!name.is_string()) throw input_error(where, "dtype is no string", {}, kFetchAgain);
  const auto type = safetensors_type(name.get_ref<const std::string&>());
  if (!type) {
    throw input_error(where, fmt::format("the dtype is \"{}\"", name.get_ref<const std::string&>()),
                      "F32, F16, BF16, F64, an integer type or BOOL",
                      "convert the checkpoint to one of these");
  }
  return *type;
}

std::vector<std::int64_t> entry_shape(const json& entry, const std::string& where) {
  const json& dimensions = field(entry, "shape", where);
  if (!dimensions.is_array()) throw input_error(where, "shape is no array", {}, kFetchAgain);
  std::vector<std::int64_t> shape;
  for (const json& dimension : dimensions) {
    const std::uint64_t value = unsigned_value(dimension, where, "shape");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      throw input_error(where, fmt::format("shape holds {}", value), "a size that exists",
                        kFetchAgain);
    }
    shape.push_back(static_cast<std::int64_t>(value));
  }
  return shape;
}

TensorView parse_entry(const std::string& name, const json& entry, const std::string& file,
                       std::span<const std::byte> data) {
  TensorView tensor;
  tensor.name = name;
  tensor.where = fmt::format("{}: tensor {}", file, name);
  if (!entry.is_object()) {
    throw input_error(tensor.where, "the header entry is no object", {}, kFetchAgain);
  }
  tensor.type = entry_type(entry, tensor.where);
  tensor.shape = entry_shape(entry, tensor.where);
  const json& offsets = field(entry, "data_offsets", tensor.where);
  if (!offsets.is_array() || offsets.size() != 2) {
    throw input_error(tensor.where, "data_offsets is no pair", "[begin, end]", kFetchAgain);
  }
  const std::uint64_t begin = unsigned_value(offsets[0], tensor.where, "data_offsets");
  const std::uint64_t end = unsigned_value(offsets[1], tensor.where, "data_offsets");
  if (begin > end || end > data.size()) {
    throw input_error(tensor.where,
                      fmt::format("its bytes {} to {} are not within the {} data bytes of the file",
                                  begin, end, data.size()),
                      "a complete file", kFetchAgain);
  }
  const auto expected = tensor_bytes(tensor.type, tensor.shape);
  if (!expected || *expected != end - begin) {
    throw input_error(
        tensor.where,
        fmt::format("{} {} has {} bytes in the file", file_type_name(tensor.type),
                    shape_text(tensor.shape), end - begin),
        expected ? fmt::format("{} bytes", *expected) : "a size that fits into 64 bits",
        kFetchAgain);
  }
  tensor.bytes = data.subspan(begin, end - begin);
  return tensor;
}

// As the reference does: the tensors, by offset, must fill the data without overlap or hole.
void check_layout(const std::vector<TensorView>& tensors, const std::string& file,
                  std::span<const std::byte> data) {
  std::size_t next = 0;
  const std::string* before = nullptr;
  for (const TensorView& tensor : tensors) {
    const auto begin = static_cast<std::size_t>(tensor.bytes.data() - data.data());
    if (begin < next) {
      throw input_error(tensor.where, fmt::format("its bytes overlap those of {}", *before),
                        "tensors one after another", kFetchAgain);
    }
    if (begin > next) {
      throw input_error(tensor.where,
                        fmt::format("{} bytes before it belong to no tensor", begin - next),
                        "tensors one after another", kFetchAgain);
    }
    next = begin + tensor.bytes.size();
    before = &tensor.name;
  }
  if (next != data.size()) {
    throw input_error(file, fmt::format("{} bytes after the last tensor", data.size() - next),
                      "a file that ends with its last tensor", kFetchAgain);
  }
}

std::map<std::string, std::string> parse_metadata(const json& entry, const std::string& where) {
  std::map<std::string, std::string> metadata;
  if (!entry.is_object()) throw input_error(where, "__metadata__ is no object", {}, kFetchAgain);
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      throw input_error(where, fmt::format("__metadata__ \"{}\" is no string", key), "strings",
                        kFetchAgain);
    }
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile result;
  result.file_ = MappedFile::open(path);
  const std::string where = path.string();
  const std::string_view text = header_text(result.file_);
  const std::span<const std::byte> data = result.file_.bytes().subspan(8 + text.size());
  const std::string header_where = where + " (header)";
  const json header = parse_json(
      text, {.where = header_where, .refuse_duplicate_keys = true, .max_depth = kMaxHeaderDepth});
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      result.metadata_ = parse_metadata(entry, where);
    } else {
      result.tensors_.push_back(parse_entry(name, entry, where, data));
    }
  }
  std::stable_sort(result.tensors_.begin(), result.tensors_.end(),
                   [](const TensorView& a, const TensorView& b) {
                     return std::pair(a.bytes.data(), a.bytes.size()) <
                            std::pair(b.bytes.data(), b.bytes.size());
                   });
  check_layout(result.tensors_, where, data);
  for (std::size_t i = 0; i < result.tensors_.size(); ++i) {
    result.index_.emplace(result.tensors_[i].name, i);
  }
  return result;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace wgrad::io
