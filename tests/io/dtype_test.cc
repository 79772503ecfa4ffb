#include "io/dtype.h"

#include <limits>
#include <vector>

#include "testing.h"

namespace wgrad::io {
namespace {

constexpr std::int64_t kLarge = std::int64_t{1} << 40;

TEST(FileTypes, GiveTheBytesOfAShape) {
  EXPECT_EQ(tensor_bytes(FileType::kF32, std::vector<std::int64_t>{3, 5}), 60u);
  EXPECT_EQ(tensor_bytes(FileType::kBF16, std::vector<std::int64_t>{}), 2u);
  EXPECT_EQ(tensor_bytes(FileType::kF16, std::vector<std::int64_t>{7, 0, 3}), 0u);
  EXPECT_EQ(tensor_bytes(FileType::kQ4_1, std::vector<std::int64_t>{2, 64}), 80u);
  EXPECT_EQ(tensor_bytes(FileType::kQ6_K, std::vector<std::int64_t>{1, 512}), 420u);
}

TEST(FileTypes, RefuseRowsOfPartialBlocks) {
  EXPECT_FALSE(tensor_bytes(FileType::kQ8_0, std::vector<std::int64_t>{32, 31}));
  EXPECT_FALSE(tensor_bytes(FileType::kQ4_K, std::vector<std::int64_t>{2, 128}));
}

TEST(FileTypes, RefuseSizesThatOverflow) {
  EXPECT_FALSE(tensor_bytes(FileType::kU8, std::vector<std::int64_t>{kLarge, kLarge}));
  EXPECT_FALSE(tensor_bytes(FileType::kF32, std::vector<std::int64_t>{kLarge, 1 << 22}));
  EXPECT_FALSE(element_count(std::vector<std::int64_t>{kLarge, kLarge, 0}));
  EXPECT_FALSE(element_count(std::vector<std::int64_t>{2, -1}));
  EXPECT_EQ(element_count(std::vector<std::int64_t>{0, kLarge, kLarge}), 0u);
}

TEST(FileTypes, AreFoundByTheirNamesAndNumbers) {
  EXPECT_EQ(safetensors_type("BF16"), FileType::kBF16);
  EXPECT_EQ(safetensors_type("U16"), FileType::kU16);
  EXPECT_FALSE(safetensors_type("F8_E4M3"));
  EXPECT_FALSE(safetensors_type("Q8_0"));
  EXPECT_EQ(ggml_type(14), FileType::kQ6_K);
  EXPECT_EQ(ggml_type(30), FileType::kBF16);
  EXPECT_FALSE(ggml_type(16));
  EXPECT_EQ(ggml_type_name(16), "IQ2_XXS");
  EXPECT_EQ(ggml_type_name(99), "type 99");
}

template <typename T>
void expect_converts(FileType type, const std::vector<T>& stored) {
  std::vector<float> out(stored.size());
  to_f32(type, std::as_bytes(std::span(stored)), out);
  for (std::size_t i = 0; i < stored.size(); ++i) EXPECT_EQ(out[i], static_cast<float>(stored[i]));
}

TEST(FileTypes, ConvertPlainNumbersToFloat) {
  expect_converts<double>(FileType::kF64, {0.1, -3e38, 5e-324});
  expect_converts<std::int64_t>(FileType::kI64, {std::numeric_limits<std::int64_t>::min(), 3});
  expect_converts<std::int32_t>(FileType::kI32, {-5, 16777217});
  expect_converts<std::int16_t>(FileType::kI16, {-32768, 7});
  expect_converts<std::int8_t>(FileType::kI8, {-128, 127});
  expect_converts<std::uint64_t>(FileType::kU64, {std::numeric_limits<std::uint64_t>::max()});
  expect_converts<std::uint32_t>(FileType::kU32, {4294967295u});
  expect_converts<std::uint16_t>(FileType::kU16, {65535});
  expect_converts<std::uint8_t>(FileType::kU8, {0, 255});
  expect_converts<std::uint8_t>(FileType::kBool, {0, 1});
}

TEST(FileTypes, ConvertBytesThatAreNotAligned) {
  const std::string bytes = "x" + raw(1.5f) + raw(-2.0f);
  std::vector<float> out(2);
  to_f32(FileType::kF32, std::as_bytes(std::span(bytes)).subspan(1), out);
  EXPECT_EQ(out, (std::vector<float>{1.5f, -2.0f}));
}

TEST(FileTypes, RefuseABufferOfAnotherSize) {
  std::vector<float> out(32);
  const std::vector<std::byte> bytes(33);
  expect_error(ErrorKind::kRuntime, {"33 bytes of Q8_0 for 32 floats"},
               [&] { to_f32(FileType::kQ8_0, bytes, out); });
}

}  // namespace
}  // namespace wgrad::io
