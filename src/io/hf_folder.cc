#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "io/checkpoint_source.h"
#include "io/json.h"
#include "io/row_range.h"
#include "io/safetensors.h"
#include "wgrad/error.h"

namespace wgrad::io {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr std::string_view kFetchAgain = "fetch the missing or broken file again";

class SafetensorsSource : public TensorSource {
 public:
  explicit SafetensorsSource(std::string where) : where_(std::move(where)) {}

  /// Takes the file over; the names in `wanted`, or all of it.
  void add(SafetensorsFile file, const std::vector<std::string>* wanted) {
    const auto number = files_.size();
    files_.push_back(std::move(file));
    const SafetensorsFile& added = files_[number];
    if (wanted == nullptr) {
      for (const TensorView& tensor : added.tensors()) put(number, tensor);
    } else {
      for (const std::string& name : *wanted) {
        if (const TensorView* tensor = added.find(name)) put(number, *tensor);
      }
    }
  }

  const SafetensorsFile* file_with(std::string_view name) const {
    const auto found = std::find_if(files_.begin(), files_.end(), [&](const SafetensorsFile& file) {
      return file.find(name) != nullptr;
    });
    return found == files_.end() ? nullptr : &*found;
  }

  std::string where() const override { return where_; }

  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& [name, entry] : index_) result.push_back(name);
    std::sort(result.begin(), result.end());
    return result;
  }

  const TensorView* find(std::string_view name) const override {
    const auto found = index_.find(std::string(name));
    return found == index_.end() ? nullptr : &found->second.tensor;
  }

  void read_bytes(const TensorView& tensor, std::int64_t begin, std::int64_t end,
                  std::span<std::byte> out) const override {
    check_row_range(tensor, begin, end, tensor.row_bytes(), out.size());
    const auto from = stored_rows(tensor, begin, end);
    if (!from.empty()) std::memcpy(out.data(), from.data(), from.size());
  }

  using TensorSource::read_f32;
  void read_f32(const TensorView& tensor, std::int64_t begin, std::int64_t end,
                std::span<float> out) const override {
    check_row_range(tensor, begin, end, static_cast<std::uint64_t>(tensor.row_size()), out.size());
    to_f32(tensor.type, stored_rows(tensor, begin, end), out);
  }

  void release(const TensorView& tensor) const override {
    for (const SafetensorsFile& file : files_) file.file().release(tensor.bytes);
  }

 private:
  struct Entry {
    std::size_t file = 0;
    TensorView tensor;
  };

  void put(std::size_t file, TensorView tensor) {
    tensor.name = module_name_of(tensor.name);
    const auto [at, added] = index_.emplace(tensor.name, Entry{file, tensor});
    if (added) return;
    throw input_error(tensor.where,
                      fmt::format("the file has {} under another name too", tensor.name),
                      "every tensor once", kFetchAgain);
  }

  std::string where_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, Entry> index_;
};

// A shard must lie in the folder itself: a name with a folder in it could point anywhere.
void check_shard_name(const std::string& shard, const std::string& index) {
  const fs::path path(shard);
  if (shard.empty() || shard == "." || shard == ".." || path.has_parent_path() ||
      path.is_absolute() || shard.find_first_of(std::string_view("/\\\0", 3)) != shard.npos) {
    throw input_error(index, fmt::format("the weight_map names the file \"{}\"", shard),
                      "a plain file name in the same folder", "correct or fetch the index again");
  }
}

// The tensors that each shard is to hold.
std::map<std::string, std::vector<std::string>> read_index(const fs::path& path) {
  const nlohmann::json index = read_json_file(path);
  const std::string where = path.string();
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object()) {
    throw input_error(where, "there is no object \"weight_map\"",
                      "a map from each tensor to its file", "fetch the index again");
  }
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string()) {
      throw input_error(where, fmt::format("the weight_map gives no file name for {}", name),
                        "a string", "fetch the index again");
    }
    const auto& file = shard.get_ref<const std::string&>();
    check_shard_name(file, where);
    shards[file].push_back(name);
  }
  if (shards.empty()) {
    throw input_error(where, "the weight_map is empty", "at least one tensor",
                      "fetch the index again");
  }
  return shards;
}

std::unique_ptr<TensorSource> open_shards(const fs::path& folder) {
  const fs::path index = folder / kIndexFile;
  const auto shards = read_index(index);
  for (const auto& [shard, names] : shards) {
    std::error_code error;
    if (fs::exists(folder / shard, error)) continue;
    throw input_error((folder / shard).string(), "this shard is missing",
                      fmt::format("{} names it for {} tensors", kIndexFile, names.size()),
                      kFetchAgain);
  }
  auto source = std::make_unique<SafetensorsSource>(folder.string());
  for (const auto& [shard, names] : shards) {
    source->add(SafetensorsFile::open(folder / shard), &names);
  }
  for (const auto& [shard, names] : shards) {
    for (const std::string& name : names) {
      if (source->contains(module_name_of(name))) continue;
      const SafetensorsFile* other = source->file_with(name);
      throw input_error(index.string(), fmt::format("tensor {} is not in {}", name, shard),
                        other == nullptr
                            ? "the tensor in the file that the index names"
                            : fmt::format("it is in {}", other->file().path().filename().string()),
                        "fetch the index and the shards again, all of one version");
    }
  }
  return source;
}

}  // namespace

std::string module_name_of(std::string_view stored_name) {
  constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
      {"language_model.model.", "model.language_model."}, {"language_model.lm_head.", "lm_head."}};
  for (const auto& [stored, module] : kPrefixes) {
    if (!stored_name.starts_with(stored)) continue;
    return fmt::format("{}{}", module, stored_name.substr(stored.size()));
  }
  return std::string(stored_name);
}

std::unique_ptr<TensorSource> open_safetensors(const fs::path& path) {
  auto source = std::make_unique<SafetensorsSource>(path.string());
  source->add(SafetensorsFile::open(path), nullptr);
  return source;
}

std::unique_ptr<TensorSource> open_hf_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw input_error(folder.string(), "there is no such folder", "a Hugging Face model folder",
                      "check the path");
  }
  if (fs::exists(folder / kSingleFile, error)) {
    auto source = std::make_unique<SafetensorsSource>(folder.string());
    source->add(SafetensorsFile::open(folder / kSingleFile), nullptr);
    return source;
  }
  if (fs::exists(folder / kIndexFile, error)) return open_shards(folder);
  const bool pickled = fs::exists(folder / "pytorch_model.bin", error) ||
                       fs::exists(folder / "pytorch_model.bin.index.json", error);
  throw input_error(
      folder.string(), "there are no safetensors weights",
      fmt::format("{} or {}", kSingleFile, kIndexFile),
      pickled ? "save the model anew with transformers' save_pretrained, which writes safetensors"
              : "fetch the weights, or check the path");
}

}  // namespace wgrad::io
