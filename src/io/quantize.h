#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "io/dtype.h"

namespace wgrad::io {

/// Whether from_f32 makes elements of this type: F32, F16, BF16 and all quantised ones.
bool is_floating(FileType type);

/// The inverse of to_f32: rounds to the nearest value (F16, BF16; ties to even), or quantises block
/// by block with the same bits as ggml's reference quantisers without an importance matrix.
/// `values` are whole blocks, `out` exactly their bytes. A value that is not finite, or beyond the
/// halves' 65504 where the type has halves, is an input error that begins with `where`.
void from_f32(FileType type, std::span<const float> values, std::span<std::byte> out,
              std::string_view where);

}  // namespace wgrad::io
