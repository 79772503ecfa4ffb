#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gpu/device.h"
#include "gpu/kernel_sources.h"
#include "gpu/kernel_text.h"

namespace wgrad::ops {

/// The exit status and the output of a shell command.
inline std::pair<int, std::string> run_command(const std::string& command) {
  std::string output;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {-1, "popen failed"};
  char block[4096];
  for (size_t n; (n = std::fread(block, 1, sizeof block, pipe)) > 0;) output.append(block, n);
  return {pclose(pipe), output};
}

/// Whether the `tint` command, which validates WGSL without a device, is on the PATH.
inline bool has_tint() { return run_command("command -v tint").first == 0; }

/// Validates the whole text of each kernel with `tint`; what it said of those it refused.
inline std::vector<std::string> lint(std::span<const gpu::KernelSpec> kernels) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("wgrad-lint-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "kernel.wgsl").string();
  std::vector<std::string> refused;
  std::unordered_set<std::string> seen;
  for (const gpu::KernelSpec& kernel : kernels) {
    const auto [text, is_new] = seen.insert(gpu::kernel_text(kernel));
    if (!is_new) continue;
    std::ofstream(file) << *text;
    // Not every build of tint has the output format `none`; writing WGSL validates as well.
    const auto [status, output] =
        run_command(fmt::format("tint --format wgsl -o /dev/null '{}'", file));
    if (status != 0) {
      refused.push_back(fmt::format("{}.{}: {}", kernel.source, kernel.entry_point, output));
    }
  }
  std::filesystem::remove_all(folder);
  return refused;
}

/// Files of src/kernels whose text none of these kernels compiles, by source or in a prelude.
inline std::vector<std::string> files_without_kernel(std::span<const gpu::KernelSpec> kernels) {
  std::vector<std::string> missing;
  for (size_t i = 0; i < gpu::kKernelSourceCount; ++i) {
    const gpu::KernelSource& file = gpu::kKernelSources[i];
    bool used = false;
    for (const gpu::KernelSpec& kernel : kernels) {
      used |= (kernel.source == file.name && kernel.generated_text.empty()) ||
              kernel.prelude.find(file.text) != std::string::npos ||
              kernel.generated_text.find(file.text) != std::string::npos;
    }
    if (!used) missing.emplace_back(file.name);
  }
  return missing;
}

}  // namespace wgrad::ops
