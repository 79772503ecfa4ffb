#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "io/tensor_view.h"

namespace wgrad::io {

/// Checks that rows [begin, end) exist and that the caller's buffer has `room`, in elements or
/// bytes, of which `row` make up a row; a mistake of the caller is a runtime error.
void check_row_range(const TensorView& tensor, std::int64_t begin, std::int64_t end,
                     std::uint64_t row, std::uint64_t room);

/// The stored bytes of rows [begin, end), in the file's order.
std::span<const std::byte> stored_rows(const TensorView& tensor, std::int64_t begin,
                                       std::int64_t end);

}  // namespace wgrad::io
