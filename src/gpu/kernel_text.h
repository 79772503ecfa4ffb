#pragma once

#include <string>
#include <string_view>

#include "gpu/device.h"

namespace wgrad::gpu {

/// The text of a file of src/kernels by name without ending; throws where there is none.
std::string_view kernel_source(std::string_view name);

/// The whole text that is compiled for a kernel.
std::string kernel_text(const KernelSpec& kernel);

}  // namespace wgrad::gpu
