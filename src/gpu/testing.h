#pragma once

#include <cstddef>
#include <string_view>

#include "gpu/device.h"

namespace wgrad::gpu {

/// Makes the driver's loss of the device happen now, for tests of what follows it.
void lose_device(Device& device, std::string_view message);

/// Bind groups now cached.
size_t cached_bind_groups(Device& device);

}  // namespace wgrad::gpu
