#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/dtype.h"

namespace wgrad::io {

/// One tensor of a file: what it is and where its bytes lie. Does not own the bytes; they live as
/// long as the file that gave it.
struct TensorView {
  std::string name;
  FileType type = FileType::kF32;
  std::vector<std::int64_t> shape;  ///< row-major, outermost first; empty for a scalar
  std::span<const std::byte> bytes;
  std::string where;  ///< "FILE: tensor NAME", for error texts
  /// False where the file stores the rows (of a vector: the elements) in another order than the
  /// shape says, so that only TensorSource's read functions give them rightly.
  bool in_order = true;

  /// The last dimension: the elements of a row. 1 for a scalar.
  std::int64_t row_size() const { return shape.empty() ? 1 : shape.back(); }
  /// The product of all other dimensions; a vector is one row.
  std::int64_t rows() const {
    std::int64_t n = 1;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
    return n;
  }
  std::int64_t elements() const { return rows() * row_size(); }
  std::size_t row_bytes() const {
    return static_cast<std::size_t>(row_size()) / block_elements(type) * block_bytes(type);
  }
};

}  // namespace wgrad::io
