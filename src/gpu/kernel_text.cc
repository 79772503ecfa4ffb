#include "gpu/kernel_text.h"

#include <fmt/format.h>

#include "gpu/kernel_sources.h"
#include "wgrad/error.h"

namespace wgrad::gpu {

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
