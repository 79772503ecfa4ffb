#include "io/checkpoint_source.h"

#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "io/half.h"
#include "io/safetensors.h"
#include "testing.h"

namespace wgrad::io {
namespace {

using nlohmann::json;

constexpr std::string_view kIndex = "model.safetensors.index.json";

// A file with one [rows, 2] f32 tensor for each name, counting up from `first`.
void write_tensors(const fs::path& path, const std::vector<std::string>& names, float first = 0,
                   std::int64_t rows = 3) {
  std::vector<float> values(static_cast<std::size_t>(rows) * 2);
  std::iota(values.begin(), values.end(), first);
  std::vector<TensorToWrite> tensors;
  for (const std::string& name : names) {
    tensors.push_back(
        tensor_from_bytes(name, FileType::kF32, {rows, 2}, std::as_bytes(std::span(values))));
  }
  write_safetensors(path, std::move(tensors));
}

void write_index(const TemporaryFolder& folder, const json& map) {
  folder.file(kIndex, json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
}

std::vector<float> read_all(const TensorSource& source, std::string_view name) {
  std::vector<float> values(static_cast<std::size_t>(source.get(name).elements()));
  source.read_f32(name, values);
  return values;
}

TEST(HuggingFaceFolder, ReadsASingleFile) {
  const TemporaryFolder folder;
  write_tensors(folder / "model.safetensors", {"b", "a"});
  const auto source = open_checkpoint(folder.path());
  EXPECT_EQ(source->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(source->where(), folder.path().string());
  EXPECT_EQ(read_all(*source, "b"), (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

TEST(HuggingFaceFolder, ReadsRowRangesAndBytes) {
  const TemporaryFolder folder;
  write_tensors(folder / "model.safetensors", {"t"}, 0, 5);
  const auto source = open_hf_folder(folder.path());
  const TensorView& t = source->get("t");
  std::vector<float> rows(4);
  source->read_f32(t, 2, 4, rows);
  EXPECT_EQ(rows, (std::vector<float>{4, 5, 6, 7}));
  source->read_f32(t, 5, 5, {});
  std::vector<std::byte> bytes(8);
  source->read_bytes(t, 4, 5, bytes);
  EXPECT_EQ(std::memcmp(bytes.data(), (raw(8.0f) + raw(9.0f)).data(), 8), 0);
  source->release(t);
  EXPECT_EQ(read_all(*source, "t")[9], 9);
  expect_error(ErrorKind::kRuntime, {"tensor t: rows 4 to 6 were asked for"},
               [&] { source->read_f32(t, 4, 6, rows); });
  expect_error(ErrorKind::kRuntime, {"tensor t: rows -1 to 1"},
               [&] { source->read_f32(t, -1, 1, rows); });
  expect_error(ErrorKind::kRuntime, {"tensor t: the buffer has room for 4; 2"},
               [&] { source->read_f32(t, 0, 1, rows); });
  expect_error(ErrorKind::kRuntime, {"tensor t: the buffer has room for 8; 16"},
               [&] { source->read_bytes(t, 0, 2, bytes); });
}

TEST(HuggingFaceFolder, ConvertsHalvesToFloat) {
  const TemporaryFolder folder;
  const std::vector<std::uint16_t> bf16 = {f32_to_bf16(1.5f), f32_to_bf16(-3e38f)};
  const std::vector<std::uint16_t> f16 = {f32_to_f16(65504.0f), f32_to_f16(6e-8f)};
  write_safetensors(
      folder / "model.safetensors",
      {tensor_from_bytes("bf16", FileType::kBF16, {2}, std::as_bytes(std::span(bf16))),
       tensor_from_bytes("f16", FileType::kF16, {2}, std::as_bytes(std::span(f16)))});
  const auto source = open_hf_folder(folder.path());
  EXPECT_EQ(source->get("f16").rows(), 1);
  EXPECT_EQ(read_all(*source, "f16"), (std::vector<float>{65504.0f, 0x1p-24f}));
  EXPECT_EQ(read_all(*source, "bf16"), (std::vector<float>{1.5f, bf16_to_f32(bf16[1])}));
}

TEST(HuggingFaceFolder, ReadsShards) {
  const TemporaryFolder folder;
  write_tensors(folder / "model-1.safetensors", {"a", "b"}, 0);
  write_tensors(folder / "model-2.safetensors", {"c"}, 100);
  write_index(
      folder,
      {{"a", "model-1.safetensors"}, {"b", "model-1.safetensors"}, {"c", "model-2.safetensors"}});
  const auto source = open_hf_folder(folder.path());
  EXPECT_EQ(source->names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(read_all(*source, "c")[0], 100);
  EXPECT_THAT(source->get("c").where, ::testing::HasSubstr("model-2.safetensors: tensor c"));
}

TEST(HuggingFaceFolder, RefusesAMissingShard) {
  const TemporaryFolder folder;
  write_tensors(folder / "model-1.safetensors", {"a"});
  write_index(folder, {{"a", "model-1.safetensors"}, {"b", "model-2.safetensors"}});
  expect_input_error({"model-2.safetensors: this shard is missing", "for 1 tensors",
                      "fetch the missing or broken file again"},
                     [&] { open_hf_folder(folder.path()); });
}

TEST(HuggingFaceFolder, RefusesAnIndexThatNamesAnAbsentTensor) {
  const TemporaryFolder folder;
  write_tensors(folder / "model-1.safetensors", {"a"});
  write_index(folder, {{"a", "model-1.safetensors"}, {"b", "model-1.safetensors"}});
  expect_input_error({"index.json: tensor b is not in model-1.safetensors", "all of one version"},
                     [&] { open_hf_folder(folder.path()); });
}

TEST(HuggingFaceFolder, NamesTheShardThatHasTheTensorInstead) {
  const TemporaryFolder folder;
  write_tensors(folder / "model-1.safetensors", {"a"});
  write_tensors(folder / "model-2.safetensors", {"b"});
  write_index(
      folder,
      {{"a", "model-2.safetensors"}, {"b", "model-2.safetensors"}, {"c", "model-1.safetensors"}});
  expect_input_error({"is not in"}, [&] { open_hf_folder(folder.path()); });
  write_tensors(folder / "model-1.safetensors", {"a", "c"});
  expect_input_error({"tensor a is not in model-2.safetensors", "it is in model-1.safetensors"},
                     [&] { open_hf_folder(folder.path()); });
}

TEST(HuggingFaceFolder, RefusesAnIndexThatPointsOutOfTheFolder) {
  const TemporaryFolder folder;
  write_tensors(folder / "x.safetensors", {"a"});
  for (const std::string name : {"../x.safetensors", "/etc/passwd", "sub/x.safetensors", "..", ".",
                                 "", "..\\x.safetensors"}) {
    write_index(folder, {{"a", name}});
    expect_input_error({"names the file \"" + name + "\"", "a plain file name in the same folder"},
                       [&] { open_hf_folder(folder.path()); });
  }
}

TEST(HuggingFaceFolder, RefusesAnIndexOfTheWrongForm) {
  const TemporaryFolder folder;
  for (const std::string_view text : {"[]", "{}", "{\"weight_map\":[]}", "3"}) {
    folder.file(kIndex, text);
    expect_input_error({"index.json: there is no object \"weight_map\""},
                       [&] { open_hf_folder(folder.path()); });
  }
  folder.file(kIndex, "{\"weight_map\":{\"a\":1}}");
  expect_input_error({"gives no file name for a"}, [&] { open_hf_folder(folder.path()); });
  folder.file(kIndex, "{\"weight_map\":{}}");
  expect_input_error({"the weight_map is empty"}, [&] { open_hf_folder(folder.path()); });
  folder.file(kIndex, "{\"weight_map\":");
  expect_input_error({"index.json:1:15: not valid JSON"}, [&] { open_hf_folder(folder.path()); });
}

TEST(HuggingFaceFolder, RefusesADamagedShard) {
  const TemporaryFolder folder;
  folder.file("model-1.safetensors", "short");
  write_index(folder, {{"a", "model-1.safetensors"}});
  expect_input_error({"model-1.safetensors: the file has 5 bytes"},
                     [&] { open_hf_folder(folder.path()); });
}

TEST(Checkpoint, NamesWhatIsMissing) {
  const TemporaryFolder folder;
  expect_input_error({"/no/such: there is no such folder or file", "check the path"},
                     [] { open_checkpoint("/no/such"); });
  expect_input_error({"there are no safetensors weights", "model.safetensors or"},
                     [&] { open_checkpoint(folder.path()); });
  folder.file("pytorch_model.bin", "x");
  expect_input_error({"save_pretrained"}, [&] { open_checkpoint(folder.path()); });
  expect_input_error({"a.bin: this file is no GGUF file"},
                     [&] { open_checkpoint(folder.file("a.bin", "x")); });
  expect_input_error({"give the folder that holds it"},
                     [&] { open_checkpoint(folder.file("a.safetensors", "x")); });
  expect_input_error({"there is no such folder"}, [] { open_hf_folder("/no/such"); });
}

TEST(Checkpoint, SuggestsTheNearestTensorAndChecksShapes) {
  const TemporaryFolder folder;
  write_tensors(folder / "adapter.safetensors", {"layers.0.q_proj.weight", "norm"});
  const auto source = open_safetensors(folder / "adapter.safetensors");
  EXPECT_FALSE(source->contains("layers.0.q_proj.bias"));
  expect_input_error(
      {"there is no tensor layers.0.q_proj.weights", "the nearest name is layers.0.q_proj.weight"},
      [&] { source->get("layers.0.q_proj.weights"); });
  const std::vector<std::int64_t> right = {3, 2};
  const std::vector<std::int64_t> wrong = {2, 3};
  EXPECT_EQ(source->get("norm", right).name, "norm");
  expect_input_error({"tensor norm: the shape is [3, 2]; [2, 3] by the configuration"},
                     [&] { source->get("norm", wrong); });
}

}  // namespace
}  // namespace wgrad::io
