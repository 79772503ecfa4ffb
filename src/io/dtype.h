#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace wgrad::io {

/// How a tensor's elements are stored in a file.
enum class FileType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};
inline constexpr std::size_t kFileTypeCount = 21;

/// The name as safetensors and GGUF write it: "F32", "BF16", "BOOL", "Q4_K".
std::string_view file_type_name(FileType type);
/// Elements stored together: 1 for plain types, 32 or 256 for the quantised ones.
std::size_t block_elements(FileType type);
/// Bytes of such a block: the element size for plain types.
std::size_t block_bytes(FileType type);
inline bool is_quantized(FileType type) { return block_elements(type) > 1; }

/// The type that a safetensors header names, if it is one that is known here.
std::optional<FileType> safetensors_type(std::string_view name);
/// The type of ggml's number, if it is one that is known here.
std::optional<FileType> ggml_type(std::uint32_t number);
/// ggml's own name of any of its types, also those that are not read here; "type 99" if unknown.
std::string ggml_type_name(std::uint32_t number);

/// Bytes of a tensor whose rows (the last dimension) are stored one after another; nothing where
/// the product overflows, a dimension is negative or a row is no whole number of blocks.
std::optional<std::uint64_t> tensor_bytes(FileType type, std::span<const std::int64_t> shape);
/// Elements of the shape; nothing where a dimension is negative or a product of the first ones
/// exceeds 2^63 - 1.
std::optional<std::uint64_t> element_count(std::span<const std::int64_t> shape);
/// "[2, 3]".
std::string shape_text(std::span<const std::int64_t> shape);

/// Converts or dequantises stored elements to float, element by element (blocks by block, with
/// ggml's arithmetic). `bytes` must hold exactly `out.size()` elements.
void to_f32(FileType type, std::span<const std::byte> bytes, std::span<float> out);

}  // namespace wgrad::io
