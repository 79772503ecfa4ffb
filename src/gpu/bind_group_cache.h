#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "gpu/dawn.h"
#include "gpu/device.h"

namespace wgrad::gpu {

/// The shape of a kernel's bindings; kernels of one shape share bind groups.
struct BindingLayout {
  uint64_t id = 0;
  uint32_t storage_count = 0;
  uint32_t writable = 0;  ///< bit i: binding i is read_write
  bool has_parameters = false;
  wgpu::BindGroupLayout handle;
};

/// Bind groups by layout and buffer ranges. Owns them; a buffer that dies takes those it is part
/// of with it.
class BindGroupCache {
 public:
  /// The groups that a buffer is part of; kept by the buffer, maintained by the cache.
  struct Uses {
    std::vector<uint64_t> serials;
    size_t compact_at = 64;
  };

  const wgpu::BindGroup& get(const wgpu::Device& device, const BindingLayout& layout,
                             std::span<const Binding> bindings, const wgpu::Buffer& parameters,
                             uint64_t parameters_size);
  void forget(const Uses& uses);
  void clear();
  size_t size() const { return entries_.size(); }
  uint64_t created() const { return next_serial_; }

 private:
  struct Entry {
    wgpu::BindGroup group;
    uint64_t serial = 0;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::span<const uint64_t> key) const;
    size_t operator()(const std::vector<uint64_t>& key) const {
      return (*this)(std::span<const uint64_t>(key));
    }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(std::span<const uint64_t> a, std::span<const uint64_t> b) const;
  };
  using Map = std::unordered_map<std::vector<uint64_t>, Entry, Hash, Equal>;

  void note_use(Uses& uses, uint64_t serial);

  Map entries_;
  std::unordered_map<uint64_t, const std::vector<uint64_t>*> by_serial_;  ///< keys of entries_
  std::vector<uint64_t> key_;  ///< of the lookup in progress
  uint64_t next_serial_ = 0;
};

}  // namespace wgrad::gpu
