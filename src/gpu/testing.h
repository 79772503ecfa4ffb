#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gpu/device.h"

namespace wgrad::gpu {

/// Makes the driver's loss of the device happen now, for tests of what follows it.
void lose_device(Device& device, std::string_view message);

/// Makes allocations fail as they do where the device's memory is exhausted.
void pretend_exhausted(Device& device, bool exhausted);

/// The most host memory that uploads hold, however much is uploaded.
uint64_t staging_limit();

/// Bind groups now cached.
size_t cached_bind_groups(Device& device);

}  // namespace wgrad::gpu
