#include "io/quantize.h"

#include <cctype>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "io/half.h"
#include "io/safetensors.h"
#include "testing.h"

namespace wgrad::io {
namespace {

using ::testing::HasSubstr;

constexpr FileType kQuantized[] = {FileType::kQ8_0, FileType::kQ4_0, FileType::kQ4_1,
                                   FileType::kQ5_0, FileType::kQ5_1, FileType::kQ4_K,
                                   FileType::kQ5_K, FileType::kQ6_K};

std::vector<std::byte> quantized(FileType type, std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() / block_elements(type) * block_bytes(type));
  from_f32(type, values, bytes, "w");
  return bytes;
}

/// Written by tools/goldens/make_quantize_goldens.py: what ggml's own library makes of the values.
class QuantizeGoldens : public ::testing::TestWithParam<FileType> {};

TEST_P(QuantizeGoldens, HaveTheBitsOfGgmlsReference) {
  const auto file = SafetensorsFile::open(fs::path(WGRAD_TEST_DATA) / "io/quantized.safetensors");
  std::vector<float> values(static_cast<std::size_t>(file.find("values")->elements()));
  to_f32(FileType::kF32, file.find("values")->bytes, values);
  std::string name(file_type_name(GetParam()));
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  const auto expected = file.find(name)->bytes;
  const std::vector<std::byte> bytes = quantized(GetParam(), values);
  ASSERT_EQ(bytes.size(), expected.size());
  const std::size_t block = block_bytes(GetParam());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(bytes[i], expected[i]) << "block " << i / block << ", byte " << i % block;
  }
}

INSTANTIATE_TEST_SUITE_P(, QuantizeGoldens, ::testing::ValuesIn(kQuantized),
                         [](const auto& type) { return std::string(file_type_name(type.param)); });

TEST(Quantize, RoundsHalvesToNearest) {
  const std::vector<float> values = {1.0f, -0.1f, 65504.0f, 3e-8f};
  std::vector<std::uint16_t> half(4), brain(4);
  from_f32(FileType::kF16, values, std::as_writable_bytes(std::span(half)), "w");
  from_f32(FileType::kBF16, values, std::as_writable_bytes(std::span(brain)), "w");
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(half[i], f32_to_f16(values[i]));
    EXPECT_EQ(brain[i], f32_to_bf16(values[i]));
  }
}

TEST(Quantize, KeepsZerosAndValuesTooSmallForAScale) {
  for (const FileType type : kQuantized) {
    for (const float value : {0.0f, 1e-44f, -3e-39f}) {
      const std::vector<float> values(256, value);
      std::vector<float> back(256);
      to_f32(type, quantized(type, values), back);
      for (const float x : back) ASSERT_EQ(x, 0.0f) << file_type_name(type);
    }
  }
}

std::string refusal(FileType type, float value) {
  std::vector<float> values(256, 0.5f);
  values[77] = value;
  try {
    quantized(type, values);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

TEST(Quantize, RefusesWhatTheTypeCannotHold) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const FileType type : {FileType::kF32, FileType::kBF16, FileType::kQ4_K}) {
    EXPECT_THAT(refusal(type, std::nanf("")), HasSubstr("w: a value is nan"));
    EXPECT_THAT(refusal(type, -inf), HasSubstr("a value is -inf"));
  }
  EXPECT_THAT(refusal(FileType::kF16, 65520.0f), HasSubstr("use --type bf16 or f32"));
  EXPECT_THAT(refusal(FileType::kQ8_0, -70000.0f), HasSubstr("at most 65504 for Q8_0"));
  EXPECT_EQ(refusal(FileType::kBF16, 1e30f), "no error");
}

}  // namespace
}  // namespace wgrad::io
