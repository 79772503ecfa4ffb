#include "io/safetensors.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "testing.h"

namespace wgrad::io {
namespace {

using ::testing::HasSubstr;

// Opens a file of this header and data, which must be refused.
void expect_refused(std::initializer_list<std::string_view> parts, std::string_view header,
                    std::string_view data) {
  const TemporaryFolder folder;
  const auto path = folder.file("model.safetensors", safetensors_bytes(header, data));
  expect_input_error(parts, [&] { SafetensorsFile::open(path); });
}

std::string numbers(std::initializer_list<float> values) {
  std::string bytes;
  for (const float value : values) bytes += raw(value);
  return bytes;
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const TemporaryFolder folder;
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},)"
      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("empty":{"dtype":"F16","shape":[0,4],"data_offsets":[8,8]}}   )";
  const auto path = folder.file("m", safetensors_bytes(header, numbers({1, 2, 3, 4})));
  const SafetensorsFile file = SafetensorsFile::open(path);
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const TensorView* b = file.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type, FileType::kF32);
  EXPECT_EQ(b->shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(std::memcmp(b->bytes.data(), numbers({3, 4}).data(), 8), 0);
  EXPECT_THAT(b->where, HasSubstr("m: tensor b"));
  EXPECT_EQ(file.find("empty")->elements(), 0);
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(Safetensors, ReadsWhatTheReferenceImplementationWrote) {
  const SafetensorsFile file = SafetensorsFile::open(test_data("types.safetensors"));
  EXPECT_EQ(file.metadata().at("made_by"), "gguf");
  ASSERT_NE(file.find("q6_k"), nullptr);
  EXPECT_EQ(file.find("q6_k")->shape, (std::vector<std::int64_t>{3, 512}));
}

TEST(Safetensors, RefusesAFileWithoutARoomForItsHeader) {
  const TemporaryFolder folder;
  for (const std::string_view content : {"", "1234567"}) {
    expect_input_error({"model", "begins with an 8-byte header length"},
                       [&] { SafetensorsFile::open(folder.file("model", content)); });
  }
  expect_input_error({"the header is said to be 40 bytes long", "ends after 2 of them"}, [&] {
    SafetensorsFile::open(folder.file("model", raw<std::uint64_t>(40) + "{}"));
  });
}

TEST(Safetensors, RefusesAnOversizedHeader) {
  const TemporaryFolder folder;
  for (const std::uint64_t length : {std::uint64_t{100'000'001}, ~std::uint64_t{0}}) {
    expect_input_error({std::to_string(length), "at most 100000000 bytes"},
                       [&] { SafetensorsFile::open(folder.file("model", raw(length) + "{}")); });
  }
}

TEST(Safetensors, RefusesAHeaderThatIsNoJsonObject) {
  expect_refused({"does not begin with '{'"}, "", "");
  expect_refused({"does not begin with '{'"}, "[]", "");
  expect_refused({"(header):1:6: not valid JSON"}, R"({"a":)", "");
  expect_refused({"(header):1:3: byte 0xff is not valid UTF-8"}, "{\"\xff\":1}", "");
}

TEST(Safetensors, RefusesDeepNestingAndDuplicateKeys) {
  std::string deep = R"({"a":)";
  deep.append(100000, '[');
  expect_refused({"nested deeper than 8 levels"}, deep, "");
  expect_refused({"the key \"a\" appears twice"},
                 R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                 R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                 "xy");
  expect_refused({"the key \"dtype\" appears twice"},
                 R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "x");
}

TEST(Safetensors, RefusesEntriesOfTheWrongForm) {
  expect_refused({"tensor a: the header entry is no object"}, R"({"a":1})", "");
  expect_refused({"tensor a: the header gives no dtype"}, R"({"a":{}})", "");
  expect_refused({"tensor a: dtype is no string"}, R"({"a":{"dtype":3}})", "");
  expect_refused({"tensor a: the dtype is \"F8_E4M3\"", "convert the checkpoint"},
                 R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", "x");
  expect_refused({"tensor a: the header gives no shape"}, R"({"a":{"dtype":"U8"}})", "");
  expect_refused({"tensor a: shape is no array"}, R"({"a":{"dtype":"U8","shape":1}})", "");
  expect_refused({"tensor a: shape holds what is no whole number"},
                 R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "x");
  expect_refused({"tensor a: shape holds what is no whole number"},
                 R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "x");
  expect_refused({"tensor a: data_offsets is no pair"},
                 R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "x");
  expect_refused({"tensor a: data_offsets holds"},
                 R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,"1"]}})", "x");
  expect_refused({"__metadata__ is no object"}, R"({"__metadata__":[]})", "");
  expect_refused({"__metadata__ \"x\" is no string"}, R"({"__metadata__":{"x":1}})", "");
}

TEST(Safetensors, RefusesOffsetsOutsideTheFile) {
  expect_refused({"tensor a", "bytes 0 to 8 are not within the 4 data bytes"},
                 R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234");
  expect_refused({"tensor a", "bytes 4 to 0 are not within"},
                 R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", "1234");
  expect_refused({"tensor a", "are not within"},
                 R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}})",
                 "1");
}

TEST(Safetensors, RefusesOverlapsHolesAndRemainders) {
  expect_refused({"tensor b: its bytes overlap those of a"},
                 R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                 R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                 "1234");
  expect_refused({"tensor b: 1 bytes before it belong to no tensor"},
                 R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                 R"("b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
                 "1234");
  expect_refused({"model.safetensors: 2 bytes after the last tensor"},
                 R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "1234");
}

TEST(Safetensors, RefusesSizesThatDoNotMatchTheShape) {
  expect_refused({"tensor a: F32 [2, 2] has 8 bytes in the file; 16 bytes"},
                 R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,8]}})", "12345678");
  expect_refused({"tensor a", "a size that fits into 64 bits"},
                 R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
                 "");
  expect_refused({"tensor a: shape holds 18446744073709551615"},
                 R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})",
                 "1");
}

TEST(Safetensors, RefusesATruncatedFile) {
  const TemporaryFolder folder;
  const std::string whole = content_of(test_data("types.safetensors"));
  for (const std::size_t size : {whole.size() - 1, whole.size() / 2, std::size_t{100}}) {
    const auto path = folder.file("model", std::string_view(whole).substr(0, size));
    expect_input_error({"model", "fetch or write the file again"},
                       [&] { SafetensorsFile::open(path); });
  }
}

TEST(SafetensorsWriter, WritesWhatItReads) {
  const TemporaryFolder folder;
  const std::vector<float> floats = {1, 2, 3, 4, 5, 6};
  const std::string small = "abc";
  std::vector<TensorToWrite> tensors;
  tensors.push_back(
      tensor_from_bytes("small", FileType::kU8, {3}, std::as_bytes(std::span(small))));
  tensors.push_back({"pieces", FileType::kF32, {3, 2}, [&](const ByteSink& sink) {
                       const auto bytes = std::as_bytes(std::span(floats));
                       sink(bytes.first(7));
                       sink(bytes.subspan(7));
                     }});
  tensors.push_back(tensor_from_bytes("none", FileType::kF16, {0}, {}));
  write_safetensors(folder / "out", std::move(tensors), {{"format", "pt"}, {"a", "\"\n\xff"}});

  const SafetensorsFile file = SafetensorsFile::open(folder / "out");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.metadata().at("a"), "\"\n\xef\xbf\xbd");
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "pieces") << "the larger elements come first";
  EXPECT_EQ(std::memcmp(file.find("pieces")->bytes.data(), floats.data(), 24), 0);
  EXPECT_EQ(std::memcmp(file.find("small")->bytes.data(), "abc", 3), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.find("pieces")->bytes.data()) % 8, 0u);
  std::uint64_t length = 0;
  std::memcpy(&length, content_of(folder / "out").data(), 8);
  EXPECT_EQ(length % 8, 0u);
}

TEST(SafetensorsWriter, WritesNoTensorsAtAll) {
  const TemporaryFolder folder;
  write_safetensors(folder / "out", {});
  EXPECT_TRUE(SafetensorsFile::open(folder / "out").tensors().empty());
}

TEST(SafetensorsWriter, LeavesTheOldFileWhenATensorFails) {
  const TemporaryFolder folder;
  folder.file("out", "old");
  const auto write_one = [&](std::vector<std::int64_t> shape, std::size_t produced) {
    write_safetensors(folder / "out", {{"t", FileType::kU8, shape, [=](const ByteSink& sink) {
                                          sink(std::vector<std::byte>(produced));
                                        }}});
  };
  for (const std::size_t produced : {3, 5}) {
    expect_error(ErrorKind::kRuntime, {"out: tensor t", "bytes were produced", "4 bytes"},
                 [&] { write_one({4}, produced); });
  }
  EXPECT_EQ(content_of(folder / "out"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "no temporary is left";
}

TEST(SafetensorsWriter, RefusesWhatCannotBeStored) {
  const TemporaryFolder folder;
  const auto nothing = [](const ByteSink&) {};
  expect_error(ErrorKind::kRuntime, {"Q8_0 [32] cannot be stored"}, [&] {
    write_safetensors(folder / "out", {{"t", FileType::kQ8_0, {32}, nothing}});
  });
  expect_error(ErrorKind::kRuntime, {"two entries named t"}, [&] {
    write_safetensors(folder / "out",
                      {{"t", FileType::kU8, {0}, nothing}, {"t", FileType::kU8, {0}, nothing}});
  });
}

}  // namespace
}  // namespace wgrad::io
