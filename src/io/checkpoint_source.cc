#include "io/checkpoint_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "io/gguf_names.h"
#include "io/mapped_file.h"
#include "wgrad/error.h"

namespace wgrad::io {
namespace {

// Insertions, deletions and replacements from one to the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string nearest(std::string_view name, const std::vector<std::string>& names) {
  std::string best;
  std::size_t best_distance = name.size() / 3 + 1;
  for (const std::string& candidate : names) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = candidate;
  }
  return best;
}

}  // namespace

const TensorView& TensorSource::get(std::string_view name) const {
  if (const TensorView* tensor = find(name)) return *tensor;
  const std::string near = nearest(name, names());
  throw input_error(where(), fmt::format("there is no tensor {}", name),
                    near.empty() ? std::string() : fmt::format("the nearest name is {}", near),
                    "check that the weights belong to this configuration");
}

const TensorView& TensorSource::get(std::string_view name,
                                    std::span<const std::int64_t> shape) const {
  const TensorView& tensor = get(name);
  if (!std::equal(tensor.shape.begin(), tensor.shape.end(), shape.begin(), shape.end())) {
    throw input_error(tensor.where, fmt::format("the shape is {}", shape_text(tensor.shape)),
                      fmt::format("{} by the configuration", shape_text(shape)),
                      "check that the weights belong to this configuration");
  }
  return tensor;
}

void TensorSource::read_f32(std::string_view name, std::span<float> out) const {
  const TensorView& tensor = get(name);
  read_f32(tensor, 0, tensor.rows(), out);
}

std::unique_ptr<TensorSource> open_checkpoint(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return open_hf_folder(path);
  if (!std::filesystem::exists(path, error)) {
    throw input_error(path.string(), "there is no such folder or file",
                      "a Hugging Face folder or a .gguf file", "check the path");
  }
  const MappedFile file = MappedFile::open(path);
  if (file.size() >= 4 && std::memcmp(file.bytes().data(), "GGUF", 4) == 0) {
    return open_gguf_source(std::make_shared<const GgufFile>(GgufFile::open(path)));
  }
  throw input_error(
      path.string(), "this file is no GGUF file", "a Hugging Face folder or a .gguf file",
      path.extension() == ".safetensors" ? "give the folder that holds it" : "check the path");
}

}  // namespace wgrad::io
