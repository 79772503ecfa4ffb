#include "gpu/testing.h"

#include "gpu/device_impl.h"

namespace wgrad::gpu {

void lose_device(Device& device, std::string_view message) {
  device.impl().core->device.ForceLoss(wgpu::DeviceLostReason::Unknown, message);
  device.impl().core->instance.ProcessEvents();
}

void pretend_exhausted(Device& device, bool exhausted) {
  device.impl().core->pretend_exhausted = exhausted;
}

uint64_t staging_limit() { return Staging::kBlockBytes * Staging::kMaxBlocks; }

size_t cached_bind_groups(Device& device) { return device.impl().core->groups.size(); }

}  // namespace wgrad::gpu
