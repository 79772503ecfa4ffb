#pragma once

#include <compare>
#include <cstdint>

#include "gpu/device.h"

namespace wgrad::ops {

/// How pack_rows.wgsl holds a row: `lanes` invocations with `units` pieces of 8 columns each.
struct PackShape {
  int64_t lanes = 0, units = 0;
  auto operator<=>(const PackShape&) const = default;
};
/// For rows of so many columns; no lanes where they are too long to be held.
PackShape pack_shape(int64_t columns);

/// Bindings: x, y, scales. `vectors`: x is read by 16 bytes; rows and offsets are multiples of 4.
const gpu::KernelSpec& pack_rows_kernel(const PackShape& shape, bool vectors);
enum class PackStep : uint8_t { kRowPowers, kPackPowers, kPackScaled };
const gpu::KernelSpec& pack_kernel(PackStep step, bool vectors);

}  // namespace wgrad::ops
