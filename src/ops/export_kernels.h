#pragma once

#include <filesystem>
#include <string>

/// The ten kernels that wgrad grew out of (wgrad/kernels.h), with their original interfaces, as
/// self-contained WGSL for any WebGPU program: `wgrad kernels export`. What each computes stands at
/// the head of its file.
namespace wgrad::ops {

/// manifest.json: how to bind and dispatch each kernel.
std::string export_manifest();

/// Writes the kernels and manifest.json into `folder`, which is made where it does not exist.
void export_kernels(const std::filesystem::path& folder);

}  // namespace wgrad::ops
