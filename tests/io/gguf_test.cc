#include "io/gguf.h"

#include <limits>
#include <vector>

#include "gguf_builder.h"
#include "io/safetensors.h"

namespace wgrad::io {
namespace {

GgufFile opened(const std::string& bytes) {
  const TemporaryFolder folder;
  return GgufFile::open(folder.file("m.gguf", bytes));
}

void expect_refused(std::initializer_list<std::string_view> parts, const std::string& bytes) {
  expect_input_error(parts, [&] { opened(bytes); });
}

class DequantizedType : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, DequantizedType,
                         ::testing::Values("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0",
                                           "q5_1", "q4_k", "q5_k", "q6_k"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(DequantizedType, HasTheBitsOfTheReference) {
  const GgufFile file = GgufFile::open(test_data("types.gguf"));
  const SafetensorsFile expected = SafetensorsFile::open(test_data("types.safetensors"));
  const TensorView* tensor = file.find_tensor(GetParam());
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (std::vector<std::int64_t>{3, 512}));
  std::vector<float> values(3 * 512);
  to_f32(tensor->type, tensor->bytes, values);
  std::vector<float> reference(3 * 512);
  to_f32(FileType::kF32, expected.find(GetParam())->bytes, reference);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(reference[i]))
        << "element " << i << ": " << values[i] << " for " << reference[i];
  }
}

TEST(Gguf, ReadsMetadataOfEveryType) {
  const GgufFile file = GgufFile::open(test_data("types.gguf"));
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.string("general.architecture"), "test");
  EXPECT_EQ(file.integer("test.u8"), 200);
  EXPECT_EQ(file.integer("test.i8"), -100);
  EXPECT_EQ(file.integer("test.u16"), 60000);
  EXPECT_EQ(file.integer("test.i16"), -30000);
  EXPECT_EQ(file.integer("test.u32"), 4000000000);
  EXPECT_EQ(file.integer("test.i32"), -2000000000);
  EXPECT_EQ(std::get<std::uint64_t>(file.find("test.u64")->value), 18000000000000000000u);
  EXPECT_EQ(file.integer("test.i64"), -9000000000000000000);
  EXPECT_EQ(file.number("test.f32"), static_cast<double>(0.1f));
  EXPECT_EQ(file.number("test.f64"), 0.1);
  EXPECT_EQ(file.number("test.u8"), 200.0);
  EXPECT_EQ(file.boolean("test.bool"), true);
  EXPECT_EQ(file.string("test.string"), "naïve ☃");
  EXPECT_EQ(file.strings("test.strings"), (std::vector<std::string_view>{"a", "", "ſ"}));
  EXPECT_EQ(file.integers("test.ints"), (std::vector<std::int64_t>{1, -2, 3}));
  EXPECT_EQ(file.numbers("test.floats"), (std::vector<double>{0.5, -1.5}));
  EXPECT_EQ(file.numbers("test.ints"), (std::vector<double>{1, -2, 3}));
  const auto& nested =
      std::get<std::vector<GgufValue>>(std::get<GgufArray>(file.find("test.nested")->value));
  ASSERT_EQ(nested.size(), 2u);
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(std::get<GgufArray>(nested[0].value)),
            (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(file.keys().size(), 17u);
}

TEST(Gguf, TellsAbsentKeysFromThoseOfAnotherType) {
  const GgufFile file = GgufFile::open(test_data("types.gguf"));
  EXPECT_FALSE(file.integer("no.such"));
  EXPECT_FALSE(file.strings("no.such"));
  EXPECT_EQ(file.find_tensor("no.such"), nullptr);
  const auto refused = [&](std::string_view key, std::string_view expected, auto read) {
    expect_input_error({"types.gguf: key", key, expected}, [&] { read(key); });
  };
  refused("test.string", "it holds a string; a whole number",
          [&](std::string_view key) { file.integer(key); });
  refused("test.u64", "a whole number below 2^63",
          [&](std::string_view key) { file.integer(key); });
  refused("test.f32", "it holds a fraction", [&](std::string_view key) { file.integer(key); });
  refused("test.bool", "a number", [&](std::string_view key) { file.number(key); });
  refused("test.u8", "true or false", [&](std::string_view key) { file.boolean(key); });
  refused("test.ints", "it holds an array; a string",
          [&](std::string_view key) { file.string(key); });
  refused("test.floats", "an array of whole numbers",
          [&](std::string_view key) { file.integers(key); });
  refused("test.strings", "an array of numbers", [&](std::string_view key) { file.numbers(key); });
  refused("test.ints", "an array of strings", [&](std::string_view key) { file.strings(key); });
}

TEST(Gguf, ReadsVersionTwoAndScalars) {
  GgufBuilder builder;
  builder.version = 2;
  builder.zeros("scalar", {}).zeros("matrix", {3, 2});
  const GgufFile file = opened(builder.bytes());
  EXPECT_EQ(file.version(), 2u);
  EXPECT_TRUE(file.find_tensor("scalar")->shape.empty());
  EXPECT_EQ(file.find_tensor("matrix")->shape, (std::vector<std::int64_t>{2, 3}));
}

TEST(Gguf, RefusesOtherFilesAndVersions) {
  expect_refused({"m.gguf: the file does not begin with \"GGUF\""}, "");
  expect_refused({"does not begin with \"GGUF\""}, "GGML and more bytes");
  GgufBuilder builder;
  for (const std::uint32_t version : {0x01000001u, 1u, 4u}) {
    builder.version = version;
    expect_refused({"the GGUF version is " + std::to_string(version), "version 2 or 3"},
                   builder.bytes());
  }
  builder.version = 0x03000000;
  expect_refused({"the file is big-endian", "little-endian"}, builder.bytes());
}

TEST(Gguf, RefusesCountsThatTheFileCannotHold) {
  GgufBuilder builder;
  builder.tensor_count = std::uint64_t{1} << 60;
  expect_refused({"the number of tensors is 1152921504606846976"}, builder.bytes());
  builder = {};
  builder.key_count = ~std::uint64_t{0};
  expect_refused({"the number of keys is 18446744073709551615"}, builder.bytes());
  builder = {};
  builder.key("a", kTagArray, raw<std::uint32_t>(kTagString) + raw(std::uint64_t{1} << 61));
  expect_refused({"the value of a is 2305843009213693952"}, builder.bytes());
  builder = {};
  builder.key("a", kTagString, raw(~std::uint64_t{0}));
  expect_refused({"the file ends within the value of a"}, builder.bytes());
  builder = {};
  builder.keys = raw(~std::uint64_t{0} - 3) + "name";
  builder.key_count = 1;
  expect_refused({"the file ends within a key"}, builder.bytes());
}

TEST(Gguf, RefusesUnknownTypesDepthAndDuplicates) {
  GgufBuilder builder;
  builder.key("a", 13, "12345678");
  expect_refused({"the value of a has the unknown type 13"}, builder.bytes());
  std::string nested;
  for (int i = 0; i < 1000; ++i) nested += raw<std::uint32_t>(kTagArray) + raw<std::uint64_t>(1);
  builder = {};
  builder.key("a", kTagArray, nested);
  expect_refused({"the value of a has arrays nested deeper than 4"}, builder.bytes());
  builder = {};
  builder.number("a", 1).number("a", 2);
  expect_refused({"the key a appears twice"}, builder.bytes());
  builder = {};
  builder.zeros("t", {4}).zeros("t", {4});
  expect_refused({"tensor t: the name appears twice"}, builder.bytes());
}

TEST(Gguf, RefusesTensorsOfTheWrongForm) {
  GgufBuilder builder;
  builder.info("t", {1, 1, 1, 1, 1}, 0, 0);
  expect_refused({"tensor t: it has 5 dimensions; at most 4"}, builder.bytes());
  builder = {};
  builder.info("t", {~std::uint64_t{0}}, 0, 0);
  expect_refused({"tensor t: a dimension is 18446744073709551615"}, builder.bytes());
  builder = {};
  builder.info("t", {std::uint64_t{1} << 40, std::uint64_t{1} << 40}, 0, 0);
  expect_refused({"tensor t: [1099511627776, 1099511627776] cannot be stored as F32"},
                 builder.bytes());
  builder = {};
  builder.info("t", {33, 2}, 8, 0);
  expect_refused({"tensor t: [2, 33] cannot be stored as Q8_0", "whole blocks of 32"},
                 builder.bytes());
  builder = {};
  builder.info("t", {256}, 16, 0);
  expect_refused({"tensor t: it is stored as IQ2_XXS", "another quantisation"}, builder.bytes());
  builder = {};
  builder.info("t", {256}, 1234, 0);
  expect_refused({"tensor t: it is stored as type 1234"}, builder.bytes());
}

TEST(Gguf, RefusesTensorsOutsideTheData) {
  GgufBuilder builder;
  builder.info("t", {8}, 0, 0);
  builder.data.assign(31, 'x');
  expect_refused({"tensor t: its 32 bytes at offset 0 are not within the 31 data bytes"},
                 builder.bytes());
  builder = {};
  builder.info("t", {4}, 0, 16);
  builder.data.assign(64, 'x');
  expect_refused({"tensor t", "not aligned to 32"}, builder.bytes());
  builder = {};
  builder.info("t", {4}, 0, ~std::uint64_t{31});
  builder.data.assign(64, 'x');
  expect_refused({"tensor t", "are not within"}, builder.bytes());
  builder = {};
  builder.info("a", {16}, 0, 0).info("b", {16}, 0, 32);
  builder.data.assign(128, 'x');
  expect_refused({"tensor b: its bytes overlap those of a"}, builder.bytes());
}

TEST(Gguf, RefusesAnAlignmentThatIsNone) {
  for (const std::uint32_t alignment : {0u, 24u, 0x80000000u}) {
    GgufBuilder builder;
    builder.number("general.alignment", alignment);
    expect_refused({"general.alignment is " + std::to_string(alignment), "a power of two"},
                   builder.bytes());
  }
}

TEST(Gguf, RefusesEveryTruncation) {
  const std::string whole = content_of(test_data("types.gguf"));
  const TemporaryFolder folder;
  for (std::size_t size = 0; size + 1 < whole.size(); size += 1 + size / 20) {
    const auto path = folder.file("m.gguf", std::string_view(whole).substr(0, size));
    expect_input_error({"m.gguf"}, [&] { GgufFile::open(path); });
  }
}

}  // namespace
}  // namespace wgrad::io
