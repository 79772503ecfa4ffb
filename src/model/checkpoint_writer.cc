#include "model/checkpoint_writer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "io/atomic_file.h"
#include "io/half.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/read_rows.h"
#include "wgrad/error.h"

namespace wgrad::model {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kOutput = "lm_head.weight";
constexpr int64_t kChunkElements = int64_t{1} << 22;

int64_t rows_at_once(const io::TensorView& tensor) {
  return std::max(int64_t{1}, kChunkElements / std::max(int64_t{1}, tensor.row_size()));
}

io::FileType written_type(const io::TensorView& tensor, bool changes) {
  if (io::is_quantized(tensor.type)) return io::FileType::kF32;
  const bool floating = tensor.type == io::FileType::kF32 || tensor.type == io::FileType::kF16 ||
                        tensor.type == io::FileType::kBF16;
  return changes && !floating ? io::FileType::kF32 : tensor.type;
}

/// Rounds to the nearest value of the type, ties to even.
void sink_rounded(io::FileType type, std::span<const float> values, const io::ByteSink& sink) {
  if (type == io::FileType::kF32) return sink(std::as_bytes(values));
  std::vector<uint16_t> narrow(values.size());
  const bool brain = type == io::FileType::kBF16;
  std::transform(values.begin(), values.end(), narrow.begin(),
                 [&](float x) { return brain ? io::f32_to_bf16(x) : io::f32_to_f16(x); });
  sink(std::as_bytes(std::span<const uint16_t>(narrow)));
}

void produce_changed(const io::TensorSource& source, const io::TensorView& tensor,
                     CheckpointEdits* edits, const io::ByteSink& sink) {
  const io::FileType type = written_type(tensor, edits != nullptr);
  const int64_t step = rows_at_once(tensor);
  std::vector<float> rows;
  for (int64_t begin = 0; begin < tensor.rows(); begin += step) {
    const int64_t end = std::min(tensor.rows(), begin + step);
    rows.resize(static_cast<size_t>((end - begin) * tensor.row_size()));
    read_rows(source, tensor, begin, end, rows);
    if (edits != nullptr) edits->apply(tensor, begin, end, rows);
    sink_rounded(type, rows, sink);
  }
  source.release(tensor);
}

void produce_copy(const io::TensorSource& source, const io::TensorView& tensor,
                  const io::ByteSink& sink) {
  const int64_t step = rows_at_once(tensor);
  std::vector<std::byte> bytes;
  for (int64_t begin = 0; begin < tensor.rows(); begin += step) {
    const int64_t end = std::min(tensor.rows(), begin + step);
    bytes.resize(static_cast<size_t>(end - begin) * tensor.row_bytes());
    source.read_bytes(tensor, begin, end, bytes);
    sink(bytes);
  }
  source.release(tensor);
}

/// `tensor` is one of the source, or bears another name; it is written under `name`.
io::TensorToWrite tensor_to_write(const io::TensorSource& source, const io::TensorView& tensor,
                                  const std::string& name, CheckpointEdits& edits) {
  const bool changes = edits.changes(tensor.name);
  io::TensorToWrite out{
      .name = name, .type = written_type(tensor, changes), .shape = tensor.shape, .produce = {}};
  const io::TensorView* view = &tensor;
  if (changes || out.type != tensor.type) {
    CheckpointEdits* editor = changes ? &edits : nullptr;
    out.produce = [&source, view, editor](const io::ByteSink& sink) {
      produce_changed(source, *view, editor, sink);
    };
  } else {
    out.produce = [&source, view](const io::ByteSink& sink) { produce_copy(source, *view, sink); };
  }
  return out;
}

/// The names of each weight file as it has them; one file unless the base is in shards.
std::map<std::string, std::vector<std::string>> weight_files(const fs::path& base,
                                                             const io::TensorSource& source) {
  std::map<std::string, std::vector<std::string>> files;
  const fs::path index = base / kIndexFile;
  const bool sharded = fs::is_directory(base) && !fs::exists(base / kSingleFile);
  if (!sharded) {
    std::vector<std::string>& names = files[kSingleFile];
    if (!fs::is_directory(base)) {
      names = source.names();
    } else {
      const io::SafetensorsFile file = io::SafetensorsFile::open(base / kSingleFile);
      for (const io::TensorView& tensor : file.tensors()) names.push_back(tensor.name);
      std::sort(names.begin(), names.end());
    }
    return files;
  }
  // The source has checked the index.
  const json object = io::read_json_file(index);
  for (const auto& [name, file] : object.at("weight_map").items()) {
    files[file.get<std::string>()].push_back(name);
  }
  return files;
}

std::string torch_name(io::FileType type) {
  switch (type) {
    case io::FileType::kF16:
      return "float16";
    case io::FileType::kBF16:
      return "bfloat16";
    default:
      return "float32";
  }
}

void write_untied_config(const fs::path& path) {
  json config = io::read_json_file(path);
  config["tie_word_embeddings"] = false;
  if (config.contains("text_config")) config["text_config"]["tie_word_embeddings"] = false;
  io::write_file_atomically(path,
                            config.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace

void write_checkpoint(const ModelConfig& config, const fs::path& base,
                      const io::TensorSource& source, CheckpointEdits& edits, const fs::path& out) {
  auto files = weight_files(base, source);
  const io::TensorView& table = source.get(config.table_name() + ".weight");
  io::TensorView output = table;
  output.name = kOutput;
  const bool adds_output = edits.unties() && source.find(kOutput) == nullptr;
  const auto is_table = [&](const std::string& name) {
    return io::module_name_of(name) == table.name;
  };
  if (adds_output) {
    for (auto& [file, names] : files) {
      if (std::any_of(names.begin(), names.end(), is_table)) names.push_back(kOutput);
    }
  }
  json weight_map = json::object();
  uint64_t total = 0;
  for (const auto& [file, names] : files) {
    std::vector<io::TensorToWrite> tensors;
    for (const std::string& name : names) {
      const bool added = adds_output && name == kOutput;
      const io::TensorView& tensor = added ? output : source.get(io::module_name_of(name));
      tensors.push_back(tensor_to_write(source, tensor, name, edits));
      weight_map[name] = file;
      total += io::tensor_bytes(tensors.back().type, tensors.back().shape).value_or(0);
    }
    io::write_safetensors(out / file, std::move(tensors), {{"format", "pt"}});
  }
  if (files.size() > 1 || !files.contains(kSingleFile)) {
    const json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
    io::write_file_atomically(out / kIndexFile, index.dump(2) + "\n");
  }
  write_model_files(base, torch_name(written_type(table, edits.changes(table.name))), out);
  if (edits.unties()) write_untied_config(out / "config.json");
}

}  // namespace wgrad::model
