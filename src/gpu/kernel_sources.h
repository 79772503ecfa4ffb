#pragma once

#include <cstddef>
#include <string_view>

namespace wgrad::gpu {

/// The text of a file of src/kernels, compiled into the program.
struct KernelSource {
  std::string_view name;  ///< the file's name without ".wgsl"
  std::string_view text;
};

extern const KernelSource kKernelSources[];
extern const std::size_t kKernelSourceCount;

}  // namespace wgrad::gpu
