#include "io/gguf_writer.h"

#include <algorithm>
#include <span>
#include <vector>

#include "io/free_space.h"
#include "io/gguf.h"
#include "io/gguf_names.h"
#include "testing.h"

namespace wgrad::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GgufWriter, WritesWhatTheReaderReads) {
  const TemporaryFolder folder;
  GgufWriter writer;
  writer.text("general.architecture", "llama");
  writer.number("a", 4000000000u);
  writer.fraction("b", 0.1f);
  writer.flag("c", true);
  writer.texts("d", std::vector<std::string>{"x", "", "yy"});
  writer.numbers("e", std::vector<std::int32_t>{-1, 7});
  writer.fractions("f", std::vector<float>{0.5f, -2});
  writer.number("a", 5);  // the first one counts
  const std::vector<float> first = {1, 2, 3, 4, 5, 6}, second = {7};
  writer.tensor(tensor_from_bytes("one", FileType::kF32, {2, 3}, std::as_bytes(std::span(first))));
  writer.tensor(tensor_from_bytes("two", FileType::kF32, {1}, std::as_bytes(std::span(second))));
  const fs::path path = folder / "x.gguf";
  writer.write(path);
  EXPECT_EQ(fs::file_size(path), writer.file_size());

  const GgufFile file = GgufFile::open(path);
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.keys().size(), 7u);
  EXPECT_EQ(file.integer("a"), 4000000000);
  EXPECT_EQ(file.number("b"), static_cast<double>(0.1f));
  EXPECT_EQ(file.boolean("c"), true);
  EXPECT_THAT(*file.strings("d"), ElementsAre("x", "", "yy"));
  EXPECT_THAT(*file.integers("e"), ElementsAre(-1, 7));
  EXPECT_THAT(*file.numbers("f"), ElementsAre(0.5, -2.0));
  EXPECT_THAT(file.find_tensor("one")->shape, ElementsAre(2, 3));
  std::vector<float> read(6);
  to_f32(FileType::kF32, file.find_tensor("one")->bytes, read);
  EXPECT_EQ(read, first);
  EXPECT_EQ(file.find_tensor("two")->bytes.size(), 4u);
}

TEST(GgufWriter, WritesKeysOfAnotherFileAgainByteForByte) {
  const TemporaryFolder folder;
  const GgufFile types = GgufFile::open(fs::path(WGRAD_TEST_DATA) / "io/types.gguf");
  GgufWriter writer;
  for (const std::string& key : types.keys()) writer.raw(key, types.raw(key));
  writer.write(folder / "copy.gguf");
  const GgufFile copy = GgufFile::open(folder / "copy.gguf");
  ASSERT_EQ(copy.keys(), types.keys());
  for (const std::string& key : types.keys()) {
    EXPECT_TRUE(std::ranges::equal(copy.raw(key), types.raw(key))) << key;
  }
}

TEST(GgufWriter, LeavesNothingBehindWhenATensorFails) {
  const TemporaryFolder folder;
  GgufWriter writer;
  writer.tensor(
      {.name = "short", .type = FileType::kF32, .shape = {4}, .produce = [](const ByteSink& sink) {
         sink(std::vector<std::byte>(12));
       }});
  EXPECT_THROW(writer.write(folder / "x.gguf"), Error);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(GgufNames, AreTheInverseOfTheReaders) {
  for (const char* name :
       {"token_embd.weight", "output.weight", "output_norm.weight", "blk.0.attn_q.bias",
        "blk.12.ffn_down.weight", "blk.3.attn_k_norm.weight"}) {
    EXPECT_EQ(gguf_tensor_name(*hf_tensor_name(name)), name);
  }
  EXPECT_FALSE(gguf_tensor_name("model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(gguf_tensor_name("model.vision.weight"));
}

TEST(GgufNames, PairTheHalvesOfAHead) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < 12; ++row) rows.push_back(half_split_row(row, 6));
  EXPECT_THAT(rows, ElementsAre(0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11));
}

TEST(FreeSpace, IsAskedForBeforeWriting) {
  const TemporaryFolder folder;
  check_free_space(folder / "x", 1);
  try {
    check_free_space(folder / "x", std::uint64_t{1} << 62);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("bytes are free on this disk"));
  }
}

}  // namespace
}  // namespace wgrad::io
