#include "gpu/prelude.h"

#include <fmt/format.h>

#include "gpu/kernel_sources.h"
#include "wgrad/error.h"

namespace wgrad::gpu {

std::string Prelude::text() const {
  std::string text;
  if (f16) text += "enable f16;\n";
  if (subgroups) text += "enable subgroups;\n";
  if (subgroup_matrix) {
    text +=
        "enable chromium_experimental_subgroup_matrix;\n"
        "diagnostic(off, chromium.subgroup_matrix_uniformity);\n";
  }
  for (const auto& [name, type] : aliases) text += fmt::format("alias {} = {};\n", name, type);
  for (const auto& [name, value] : constants) text += fmt::format("const {} = {}u;\n", name, value);
  for (std::string_view library : libraries) text += kernel_source(library);
  return text;
}

std::string_view reduce_library(const Features& features) {
  return features.subgroups ? "lib_reduce_subgroups" : "lib_reduce_core";
}

std::string_view kernel_source(std::string_view name) {
  for (std::size_t i = 0; i < kKernelSourceCount; ++i) {
    if (kKernelSources[i].name == name) return kKernelSources[i].text;
  }
  throw runtime_failure(fmt::format("kernel '{}'", name), "no such file in src/kernels");
}

std::string kernel_text(const KernelSpec& kernel) {
  std::string text = kernel.prelude;
  text += kernel.generated_text.empty() ? kernel_source(kernel.source)
                                        : std::string_view(kernel.generated_text);
  return text;
}

}  // namespace wgrad::gpu
