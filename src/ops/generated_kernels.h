#pragma once

#include <map>
#include <mutex>
#include <string_view>

#include "gpu/device.h"

namespace wgrad::ops {

/// The kernel that `write` generates for `key`, written once for the program's life. Each type of
/// key has one table, so one generator.
template <typename Key, typename Write>
const gpu::KernelSpec& generated_kernel(const Key& key, std::string_view source, Write write) {
  static std::mutex mutex;
  static std::map<Key, gpu::KernelSpec> specs;
  const std::lock_guard lock(mutex);
  auto [it, added] = specs.try_emplace(key);
  if (added) {
    it->second.source = source;
    it->second.entry_point = "main";
    it->second.permanent = true;
    it->second.generated_text = write(key);
  }
  return it->second;
}

}  // namespace wgrad::ops
