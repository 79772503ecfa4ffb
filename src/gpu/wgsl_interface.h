#pragma once

#include <cstdint>
#include <string_view>

namespace wgrad::gpu {

/// The bindings of group 0 that one entry point uses.
struct WgslInterface {
  uint32_t storage_count = 0;  ///< one past the highest storage binding, and the uniform's number
  uint32_t used = 0;           ///< bit i: storage binding i is used
  uint32_t writable = 0;       ///< bit i: storage binding i is read_write
  bool has_uniform = false;
  uint32_t uniform_binding = 0;
  bool found = false;  ///< the entry point exists
};

/// Reads the interface of `entry_point` from WGSL text: the `@group(0) @binding(N) var<...>`
/// declarations that it or a function it calls names. Invalid text gives some answer; the shader
/// compiler reports what is wrong with it.
WgslInterface read_wgsl_interface(std::string_view text, std::string_view entry_point);

}  // namespace wgrad::gpu
