#include "gpu/core.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "wgrad/error.h"

namespace wgrad::gpu {

void ErrorState::record(std::string_view text) {
  std::lock_guard lock(mutex_);
  if (text_.empty()) text_ = text.empty() ? "an error without text" : text;
  any_.store(true, std::memory_order_release);
}

void ErrorState::record_lost(std::string_view text) {
  std::lock_guard lock(mutex_);
  lost_text_ = text;
  lost_.store(true, std::memory_order_release);
  any_.store(true, std::memory_order_release);
}

void ErrorState::throw_first(std::string_view device_name) {
  std::lock_guard lock(mutex_);
  std::string where = fmt::format("device '{}'", device_name);
  // A lost device stays lost, and whatever failed after the loss failed because of it.
  if (is_lost()) {
    throw runtime_failure(where, "the device was lost: " + lost_text_,
                          "the driver stopped or reset it",
                          "continue from the last checkpoint with --resume; if it happens again, "
                          "update the driver or lower --batch-size");
  }
  any_.store(false, std::memory_order_release);
  throw runtime_failure(where, std::exchange(text_, {}));
}

Core::~Core() {
  groups.clear();
  if (device) device.Destroy();
}

void Core::wait(wgpu::Future future) {
  wgpu::WaitStatus status = instance.WaitAny(future, std::numeric_limits<uint64_t>::max());
  if (status != wgpu::WaitStatus::Success) errors.record("waiting for the device failed");
  check();
}

void Core::wait_idle() {
  wait(queue.OnSubmittedWorkDone(wgpu::CallbackMode::WaitAnyOnly,
                                 [](wgpu::QueueWorkDoneStatus, wgpu::StringView) {}));
}

wgpu::Buffer Core::try_create_buffer(std::string_view label, uint64_t bytes,
                                     wgpu::BufferUsage usage, bool mapped) {
  wgpu::BufferDescriptor descriptor;
  descriptor.label = label;
  descriptor.size = bytes;
  descriptor.usage = usage;
  descriptor.mappedAtCreation = mapped;
  wgpu::DawnFakeBufferOOMForTesting fake;
  fake.fakeOOMAtDevice = true;
  if (pretend_exhausted) descriptor.nextInChain = &fake;
  bool exhausted = false;
  device.PushErrorScope(wgpu::ErrorFilter::OutOfMemory);
  wgpu::Buffer buffer = device.CreateBuffer(&descriptor);
  wait(device.PopErrorScope(
      wgpu::CallbackMode::WaitAnyOnly,
      [&exhausted](wgpu::PopErrorScopeStatus, wgpu::ErrorType type, wgpu::StringView) {
        exhausted = type != wgpu::ErrorType::NoError;
      }));
  // A mapping that finds no host memory gives no buffer at all.
  return exhausted ? wgpu::Buffer() : buffer;
}

InternalBuffer::InternalBuffer(Core& core, std::string_view label, uint64_t bytes,
                               wgpu::BufferUsage usage, bool mapped)
    : core_(&core), handle_(core.try_create_buffer(label, bytes, usage, mapped)), bytes_(bytes) {
  if (!handle_) {
    bytes_ = 0;
    throw runtime_failure(fmt::format("device '{}'", core.info.name),
                          fmt::format("out of memory for {} bytes ({})", bytes, label), "",
                          "lower --batch-size or close other programs that use the device");
  }
  core.memory.internal += bytes;
  core.memory.peak = std::max(core.memory.peak, core.memory.total());
}

InternalBuffer::InternalBuffer(InternalBuffer&& other) noexcept
    : core_(other.core_),
      handle_(std::move(other.handle_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

InternalBuffer& InternalBuffer::operator=(InternalBuffer&& other) noexcept {
  std::swap(core_, other.core_);
  std::swap(handle_, other.handle_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

InternalBuffer::~InternalBuffer() {
  if (bytes_ > 0) core_->memory.internal -= bytes_;
}

}  // namespace wgrad::gpu
