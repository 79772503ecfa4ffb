#pragma once

#include <cstddef>
#include <span>

#include "gpu/device.h"
#include "wgrad/kernels.h"

namespace wgrad::ops {

/// Runs a kernel by what kernels() says of it. `buffers` are in the order of its bindings and, like
/// the fields, checked by nobody here; those that it writes are replaced.
void run_kernel(gpu::Device& device, const Kernel& kernel,
                std::span<const std::span<std::byte>> buffers, const KernelFields& fields);

/// Throws where there is none of this name.
const Kernel& kernel_named(std::string_view name);

}  // namespace wgrad::ops
