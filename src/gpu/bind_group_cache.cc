#include "gpu/bind_group_cache.h"

#include <algorithm>

#include "gpu/core.h"

namespace wgrad::gpu {
namespace {

/// Views at ever new offsets would fill memory; past this many the cache starts again.
constexpr size_t kMaxEntries = size_t{1} << 16;

}  // namespace

size_t BindGroupCache::Hash::operator()(std::span<const uint64_t> key) const {
  uint64_t h = key.size();
  for (uint64_t word : key) {
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
  }
  return static_cast<size_t>(h);
}

bool BindGroupCache::Equal::operator()(std::span<const uint64_t> a,
                                       std::span<const uint64_t> b) const {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

const wgpu::BindGroup& BindGroupCache::get(const wgpu::Device& device, const BindingLayout& layout,
                                           std::span<const Binding> bindings,
                                           const wgpu::Buffer& parameters,
                                           uint64_t parameters_size) {
  key_.clear();
  key_.push_back(layout.id);
  for (const Binding& b : bindings) {
    key_.insert(key_.end(), {b.buffer->impl().id, b.offset, b.size});
  }
  if (auto found = entries_.find(std::span<const uint64_t>(key_)); found != entries_.end()) {
    return found->second.group;
  }
  if (entries_.size() >= kMaxEntries) clear();

  std::vector<wgpu::BindGroupEntry> entries(bindings.size() + (layout.has_parameters ? 1 : 0));
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i].binding = static_cast<uint32_t>(i);
    if (i < bindings.size()) {
      entries[i].buffer = bindings[i].buffer->impl().handle;
      entries[i].offset = bindings[i].offset;
      entries[i].size = bindings[i].size;
    } else {
      entries[i].buffer = parameters;
      entries[i].size = parameters_size;
    }
  }
  wgpu::BindGroupDescriptor descriptor;
  descriptor.layout = layout.handle;
  descriptor.entryCount = entries.size();
  descriptor.entries = entries.data();
  const uint64_t serial = next_serial_++;
  auto [at, inserted] = entries_.emplace(key_, Entry{device.CreateBindGroup(&descriptor), serial});
  by_serial_.emplace(serial, &at->first);
  for (const Binding& b : bindings) note_use(b.buffer->impl().uses, serial);
  return at->second.group;
}

void BindGroupCache::note_use(Uses& uses, uint64_t serial) {
  // A buffer that lives long sees many partners die; their groups leave its list now and then.
  if (uses.serials.size() >= uses.compact_at) {
    std::erase_if(uses.serials, [this](uint64_t s) { return !by_serial_.contains(s); });
    uses.compact_at = std::max<size_t>(64, 2 * uses.serials.size());
  }
  uses.serials.push_back(serial);
}

void BindGroupCache::forget(const Uses& uses) {
  for (uint64_t serial : uses.serials) {
    auto found = by_serial_.find(serial);
    if (found == by_serial_.end()) continue;
    entries_.erase(entries_.find(std::span<const uint64_t>(*found->second)));
    by_serial_.erase(found);
  }
}

void BindGroupCache::clear() {
  entries_.clear();
  by_serial_.clear();
}

}  // namespace wgrad::gpu
