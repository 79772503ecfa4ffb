#pragma once

#include <string_view>
#include <vector>

#include "gpu/dawn.h"
#include "gpu/device.h"

namespace wgrad::gpu {

/// An adapter that WebGPU offers, with what is known of it. A device uses its adapter up.
struct Candidate {
  wgpu::Adapter adapter;
  AdapterInfo info;
};

/// Null where WebGPU cannot be started at all.
wgpu::Instance create_instance();
std::vector<Candidate> enumerate(const wgpu::Instance& instance);
/// The one that `selector` means; throws, naming what is there and what to install, if none is.
Candidate choose(std::vector<Candidate> candidates, std::string_view selector);

Limits to_limits(const wgpu::Limits& limits);

/// Toggles that an instance, its adapters and their devices must all be given.
inline constexpr const char* kToggles[] = {"allow_unsafe_apis", "vulkan_enable_f16_on_nvidia"};

}  // namespace wgrad::gpu
