#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "gpu/bind_group_cache.h"
#include "gpu/dawn.h"
#include "gpu/device.h"
#include "gpu/wgsl_interface.h"

namespace wgrad::gpu {

struct Core;

struct Pipeline {
  std::string name;  ///< "source.entry_point"
  wgpu::ComputePipeline handle;
  WgslInterface interface;
  const BindingLayout* layout = nullptr;
};

/// Compiled pipelines by specification, and the layouts of their bindings. Owns both.
class PipelineCache {
 public:
  /// Compiles at the first use.
  const Pipeline& get(Core& core, const KernelSpec& kernel);
  /// Compiles those that are missing, in parallel.
  void compile(Core& core, std::span<const KernelSpec> kernels);
  uint64_t size() const { return count_; }

 private:
  struct Entry {
    KernelSpec spec;
    std::string source, entry_point;  ///< what spec's views point to
    Pipeline pipeline;
  };
  struct Build;

  const Pipeline& get_by_text(Core& core, const KernelSpec& kernel);
  const Entry* find(uint64_t hash, const KernelSpec& kernel) const;
  std::unique_ptr<Build> prepare(Core& core, const KernelSpec& kernel);
  const Pipeline& insert(uint64_t hash, const Build& build);
  const BindingLayout& layout_for(Core& core, const WgslInterface& interface);

  /// Owned by pointer: pipelines keep their address. Equal hashes are told apart by comparison.
  std::unordered_map<uint64_t, std::vector<std::unique_ptr<Entry>>> entries_;
  std::unordered_map<uint64_t, std::unique_ptr<BindingLayout>> layouts_;
  std::unordered_map<const KernelSpec*, const Pipeline*> permanent_;
  uint64_t count_ = 0;
};

}  // namespace wgrad::gpu
