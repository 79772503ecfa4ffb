#include "gpu/readback.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "wgrad/error.h"

namespace wgrad::gpu {
namespace {

constexpr uint64_t kSmallest = uint64_t{4} << 10;
constexpr uint64_t kLargestKept = uint64_t{16} << 20;
constexpr size_t kMaxFree = 8;

}  // namespace

Readback::Target Readback::open(Core& core, uint64_t asked) {
  const uint64_t bytes = std::max<uint64_t>(4, (asked + 3) & ~uint64_t{3});
  auto best = free_.end();
  for (auto slot = free_.begin(); slot != free_.end(); ++slot) {
    if ((*slot)->buffer.size() < bytes) continue;
    if (best == free_.end() || (*slot)->buffer.size() < (*best)->buffer.size()) best = slot;
  }
  std::unique_ptr<Slot> slot;
  if (best != free_.end()) {
    slot = std::move(*best);
    free_.erase(best);
  } else {
    const uint64_t capacity =
        bytes > kLargestKept ? bytes : std::bit_ceil(std::max(bytes, kSmallest));
    slot = std::make_unique<Slot>();
    slot->buffer = InternalBuffer(core, "read-back", capacity,
                                  wgpu::BufferUsage::MapRead | wgpu::BufferUsage::CopyDst);
  }
  slot->asked = asked;
  slot->bytes = bytes;
  slot->ok = false;
  const uint64_t ticket = next_ticket_++;
  Slot& opened = *(open_[ticket] = std::move(slot));
  return {ticket, &opened.buffer.handle()};
}

void Readback::submitted(uint64_t ticket) {
  Slot* slot = open_.at(ticket).get();
  slot->mapped = slot->buffer.handle().MapAsync(
      wgpu::MapMode::Read, 0, slot->bytes, wgpu::CallbackMode::WaitAnyOnly,
      [slot](wgpu::MapAsyncStatus status, wgpu::StringView) {
        if (status == wgpu::MapAsyncStatus::Success) slot->ok = true;
      });
}

void Readback::finish(Core& core, uint64_t ticket, std::span<std::byte> into) {
  auto found = open_.find(ticket);
  if (found == open_.end()) {
    throw runtime_failure("read-back", fmt::format("ticket {} is not open", ticket));
  }
  std::unique_ptr<Slot> slot = std::move(found->second);
  open_.erase(found);
  if (into.size() != slot->asked) {
    throw runtime_failure(
        "read-back", fmt::format("{} bytes were read, {} are asked for", slot->asked, into.size()));
  }
  core.wait(slot->mapped);
  const void* data = slot->ok ? slot->buffer.handle().GetConstMappedRange(0, slot->bytes) : nullptr;
  if (data == nullptr) {
    throw runtime_failure(fmt::format("device '{}'", core.info.name),
                          "the memory of a read-back could not be mapped");
  }
  if (!into.empty()) std::memcpy(into.data(), data, into.size());
  slot->buffer.handle().Unmap();
  if (slot->buffer.size() <= kLargestKept && free_.size() < kMaxFree) {
    free_.push_back(std::move(slot));
  }
}

}  // namespace wgrad::gpu
