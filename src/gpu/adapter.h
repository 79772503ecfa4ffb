#pragma once

#include <string>
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

/// What a look-up gave.
struct Adapters {
  std::vector<Candidate> candidates;
  std::string complaints;  ///< what Dawn and the drivers wrote meanwhile
};

/// Null where WebGPU cannot be started at all.
wgpu::Instance create_instance();
Adapters enumerate(const wgpu::Instance& instance);
/// The one that `selector` means; throws, naming what is there and what to install, if none is.
Candidate choose(Adapters adapters, std::string_view selector);

Limits to_limits(const wgpu::Limits& limits);

/// Toggles that an instance, its adapters and their devices must all be given.
inline constexpr const char* kToggles[] = {"allow_unsafe_apis", "vulkan_enable_f16_on_nvidia"};

}  // namespace wgrad::gpu
