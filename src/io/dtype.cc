#include "io/dtype.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "io/gguf_format.h"

namespace wgrad::io {
namespace {

struct TypeFacts {
  std::string_view name;
  std::size_t elements;
  std::size_t bytes;
  bool in_safetensors;
  int ggml;  // ggml's number, -1 where it has none
};

// In the order of FileType.
constexpr std::array<TypeFacts, kFileTypeCount> kTypes = {{
    {"F32", 1, 4, true, 0},        {"F16", 1, 2, true, 1},        {"BF16", 1, 2, true, 30},
    {"F64", 1, 8, true, 28},       {"I64", 1, 8, true, 27},       {"I32", 1, 4, true, 26},
    {"I16", 1, 2, true, 25},       {"I8", 1, 1, true, 24},        {"U64", 1, 8, true, -1},
    {"U32", 1, 4, true, -1},       {"U16", 1, 2, true, -1},       {"U8", 1, 1, true, -1},
    {"BOOL", 1, 1, true, -1},      {"Q8_0", 32, 34, false, 8},    {"Q4_0", 32, 18, false, 2},
    {"Q4_1", 32, 20, false, 3},    {"Q5_0", 32, 22, false, 6},    {"Q5_1", 32, 24, false, 7},
    {"Q4_K", 256, 144, false, 12}, {"Q5_K", 256, 176, false, 13}, {"Q6_K", 256, 210, false, 14},
}};

struct GgmlName {
  std::uint32_t number;
  std::string_view name;
};

// What ggml knows beyond kTypes, so that a refusal can name it.
constexpr GgmlName kOtherGgmlNames[] = {
    {9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
    {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
    {29, "IQ1_M"},   {34, "TQ1_0"}, {35, "TQ2_0"},  {39, "MXFP4"}, {40, "NVFP4"},
};

const TypeFacts& facts(FileType type) { return kTypes[static_cast<std::size_t>(type)]; }

}  // namespace

std::string_view file_type_name(FileType type) { return facts(type).name; }
std::size_t block_elements(FileType type) { return facts(type).elements; }
std::size_t block_bytes(FileType type) { return facts(type).bytes; }

std::optional<FileType> safetensors_type(std::string_view name) {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].in_safetensors && kTypes[i].name == name) return static_cast<FileType>(i);
  }
  return std::nullopt;
}

std::optional<FileType> ggml_type(std::uint32_t number) {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].ggml >= 0 && static_cast<std::uint32_t>(kTypes[i].ggml) == number) {
      return static_cast<FileType>(i);
    }
  }
  return std::nullopt;
}

std::optional<std::uint32_t> ggml_number(FileType type) {
  const int number = facts(type).ggml;
  return number < 0 ? std::nullopt : std::optional(static_cast<std::uint32_t>(number));
}

std::string ggml_type_name(std::uint32_t number) {
  if (const auto type = ggml_type(number)) return std::string(file_type_name(*type));
  for (const GgmlName& other : kOtherGgmlNames) {
    if (other.number == number) return std::string(other.name);
  }
  return fmt::format("type {}", number);
}

std::optional<std::uint64_t> element_count(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    if (__builtin_mul_overflow(count, dimension, &count)) return std::nullopt;
  }
  return static_cast<std::uint64_t>(count);
}

std::optional<std::uint64_t> tensor_bytes(FileType type, std::span<const std::int64_t> shape) {
  const auto count = element_count(shape);
  if (!count) return std::nullopt;
  const std::uint64_t row = shape.empty() ? 1 : static_cast<std::uint64_t>(shape.back());
  const std::uint64_t block = block_elements(type);
  if (row % block != 0) return std::nullopt;
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(*count / block, std::uint64_t{block_bytes(type)}, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace wgrad::io
