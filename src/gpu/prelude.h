#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/device.h"

namespace wgrad::gpu {

/// What is generated before a kernel's text, because WGSL cannot express it as an override:
/// language extensions, type aliases, constants that stand where a literal must, and libraries.
struct Prelude {
  bool f16 = false;
  bool subgroups = false;
  bool subgroup_matrix = false;
  std::vector<std::pair<std::string, std::string>> aliases;  ///< name, type: {"storage_t", "f16"}
  std::vector<std::pair<std::string, uint32_t>> constants;   ///< name, value: {"kTile", 16}
  /// Files of src/kernels whose functions the kernel calls, by name without ending.
  std::vector<std::string_view> libraries;

  std::string text() const;
};

/// The reductions over a workgroup (`workgroup_sum`, `workgroup_max`) in the form that suits the
/// device. Needs the constant kWorkgroupSize, and `enable subgroups` for the second form.
std::string_view reduce_library(const Features& features);

/// The text of a file of src/kernels by name without ending; throws where there is none.
std::string_view kernel_source(std::string_view name);

/// The whole text that is compiled for a kernel.
std::string kernel_text(const KernelSpec& kernel);

}  // namespace wgrad::gpu
