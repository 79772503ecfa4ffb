#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "io/checkpoint_source.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "io/testing.h"

namespace wgrad::io {
namespace {

TEST(HostileFile, PipeIsRefusedWithoutWaiting) {
  const TemporaryFolder folder;
  const fs::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_input_error({pipe.string(), "no plain file"}, [&] { read_json_file(pipe); });
  expect_input_error({pipe.string(), "no plain file"}, [&] { MappedFile::open(pipe); });
}

TEST(HostileFile, DeviceIsRefused) {
  expect_input_error({"/dev/zero", "no plain file"}, [] { read_text_file("/dev/zero"); });
}

TEST(HostileFile, JsonOfTooManyValuesIsRefused) {
  std::string text = "[";
  for (int i = 0; i < 4000001; ++i) text += "1,";
  text += "1]";
  expect_input_error({"f.json:1:", "more than 4000000 values"},
                     [&] { parse_json(text, {.where = "f.json"}); });
}

TEST(HostileFile, CommasInStringsAreNoValues) {
  const std::string text = '"' + std::string(5000000, ',') + '"';
  EXPECT_EQ(parse_json(text, {.where = "f.json"}).get<std::string>().size(), 5000000u);
}

// Looking at every tensor again for each tensor takes many minutes here.
TEST(HostileFile, HeaderOfManyTensorsIsReadInTimeLinearInItsLength) {
  std::string header = "{";
  for (int i = 0; i < 200000; ++i) {
    header += fmt::format(R"({}"t{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
                          i == 0 ? "" : ",", i);
  }
  header += "}";
  const std::uint64_t length = header.size();
  const TemporaryFolder folder;
  const fs::path path =
      folder.file("many.safetensors",
                  std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(SafetensorsFile::open(path).tensors().size(), 200000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1));
}

}  // namespace
}  // namespace wgrad::io
