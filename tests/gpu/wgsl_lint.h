#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpu/device.h"

namespace wgrad::gpu {

/// Whether the `tint` command, which validates WGSL without a device, is on the PATH.
bool has_tint();

/// Validates the whole text of each kernel with `tint`; what it said of those it refused.
std::vector<std::string> lint(std::span<const KernelSpec> kernels);

/// Files of src/kernels whose text none of these kernels compiles, by source or in a prelude.
std::vector<std::string> files_without_kernel(std::span<const KernelSpec> kernels);

}  // namespace wgrad::gpu
