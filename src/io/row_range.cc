#include "io/row_range.h"

#include <fmt/format.h>

#include "wgrad/error.h"

namespace wgrad::io {

void check_row_range(const TensorView& tensor, std::int64_t begin, std::int64_t end,
                     std::uint64_t row, std::uint64_t room) {
  if (begin < 0 || end < begin || end > tensor.rows()) {
    throw runtime_failure(tensor.where, fmt::format("rows {} to {} were asked for", begin, end),
                          fmt::format("rows within 0 to {}", tensor.rows()));
  }
  if (static_cast<std::uint64_t>(end - begin) * row != room) {
    throw runtime_failure(tensor.where, fmt::format("the buffer has room for {}", room),
                          fmt::format("{}", static_cast<std::uint64_t>(end - begin) * row));
  }
}

std::span<const std::byte> stored_rows(const TensorView& tensor, std::int64_t begin,
                                       std::int64_t end) {
  const std::size_t row = tensor.row_bytes();
  return tensor.bytes.subspan(static_cast<std::size_t>(begin) * row,
                              static_cast<std::size_t>(end - begin) * row);
}

}  // namespace wgrad::io
