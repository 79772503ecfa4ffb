#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The ten kernels that wgrad grew out of, with their original interfaces, as self-contained WGSL
/// for any WebGPU program: `wgrad kernels export`. What each computes stands at the head of its
/// file.
namespace wgrad::ops {

struct ExportedBinding {
  std::string_view name;
  bool written = false;
};

struct ExportedField {
  std::string_view name;
  bool is_f32 = false;  ///< else u32; every field is 4 bytes, one after the other
};

/// Workgroup counts are integer arithmetic over the uniform's fields: + - * /, ceil_div(a,b),
/// min(a,b), max(a,b), parentheses.
struct ExportedEntryPoint {
  std::string_view name;
  std::string_view x, y = "1", z = "1";
};

struct ExportedKernel {
  std::string_view name;                  ///< also the file's, with ".wgsl"
  std::vector<ExportedBinding> bindings;  ///< storage buffers, numbered from 0; then the uniform
  std::vector<ExportedField> fields;      ///< of the uniform
  std::vector<ExportedEntryPoint> entry_points;  ///< in the order in which they are dispatched

  std::string_view text() const;
};

const std::vector<ExportedKernel>& exported_kernels();

/// manifest.json: how to bind and dispatch each kernel.
std::string export_manifest();

/// Writes the kernels and manifest.json into `folder`, which is made where it does not exist.
void export_kernels(const std::filesystem::path& folder);

}  // namespace wgrad::ops
