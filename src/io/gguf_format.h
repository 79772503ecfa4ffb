#pragma once

#include <cstdint>
#include <optional>

#include "io/dtype.h"

namespace wgrad::io {

/// Types of metadata values, by their numbers in the file.
enum GgufValueType : std::uint32_t {
  kGgufUint8,
  kGgufInt8,
  kGgufUint16,
  kGgufInt16,
  kGgufUint32,
  kGgufInt32,
  kGgufFloat32,
  kGgufBoolean,
  kGgufString,
  kGgufArray,
  kGgufUint64,
  kGgufInt64,
  kGgufFloat64,
  kGgufValueTypes,
};

/// ggml's number of a type, if it has one.
std::optional<std::uint32_t> ggml_number(FileType type);

/// Where nothing else is said, tensors begin at multiples of this.
inline constexpr std::uint64_t kGgufAlignment = 32;

}  // namespace wgrad::io
