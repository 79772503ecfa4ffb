#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "gpu/core.h"

namespace wgrad::gpu {

/// Host-visible memory on the way from the device. Owns its buffers; small ones are used again.
class Readback {
 public:
  struct Target {
    uint64_t ticket = 0;
    const wgpu::Buffer* buffer = nullptr;  ///< to copy into, from offset 0
  };

  /// A target for `asked` bytes, with room up to the next multiple of 4; the copy is recorded and
  /// submitted by the caller, who then calls submitted().
  Target open(Core& core, uint64_t asked);
  void submitted(uint64_t ticket);
  /// Waits, copies out what was asked for and gives the buffer back.
  void finish(Core& core, uint64_t ticket, std::span<std::byte> into);

 private:
  struct Slot {
    InternalBuffer buffer;
    uint64_t asked = 0, bytes = 0;  ///< bytes: as mapped
    wgpu::Future mapped;
    bool ok = false;
  };

  std::unordered_map<uint64_t, std::unique_ptr<Slot>> open_;
  std::vector<std::unique_ptr<Slot>> free_;
  uint64_t next_ticket_ = 1;
};

}  // namespace wgrad::gpu
