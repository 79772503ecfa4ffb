#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/context.h"
#include "ops/tensor.h"

namespace wgrad::ops {

/// A tensor as a kernel sees it: a binding must start at a multiple of 256 bytes, so `tensor`
/// starts at the one at or before the asked-for view, whose first element is `offset` elements
/// further.
struct Window {
  Tensor tensor;
  uint32_t offset = 0;
};

inline Window window(const Tensor& view) {
  if (!view) return {};
  const int64_t before = view.byte_offset() % 256 / dtype_size(view.dtype());
  return {Tensor(view.storage(), view.byte_offset() - view.byte_offset() % 256,
                 {view.size() + before}, view.dtype()),
          static_cast<uint32_t>(before)};
}

/// The memory of a view from its storage's beginning to the view's end: where several views of one
/// small storage are one binding.
inline Tensor from_storage_start(const Tensor& view) {
  const int64_t before = view.byte_offset() / dtype_size(view.dtype());
  return Tensor(view.storage(), 0, {before + view.size()}, view.dtype());
}

/// Bytes of the largest binding used: larger ones gave wrong results on a device that allows them.
inline int64_t binding_limit(const Context& ctx) {
  return static_cast<int64_t>(std::min(ctx.limits().max_binding_size, uint64_t{1} << 30));
}

}  // namespace wgrad::ops
