#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "gpu/bind_group_cache.h"
#include "gpu/blob_cache.h"
#include "gpu/dawn.h"
#include "gpu/device.h"

namespace wgrad::gpu {

/// What Dawn's callbacks report, kept until the foreground throws it. Callbacks come on any thread.
class ErrorState {
 public:
  void record(std::string_view text);
  void record_lost(std::string_view text);
  bool is_lost() const { return lost_.load(std::memory_order_acquire); }
  /// Throws the first error recorded since the last call, or the loss of the device.
  void check(std::string_view device_name) {
    if (any_.load(std::memory_order_acquire)) throw_first(device_name);
  }

 private:
  [[noreturn]] void throw_first(std::string_view device_name);

  std::atomic<bool> any_{false}, lost_{false};
  std::mutex mutex_;
  std::string text_, lost_text_;
};

/// Bytes of device memory held: by buffers that callers own, and by the device for itself.
struct Memory {
  uint64_t buffers = 0, internal = 0, peak = 0;
  uint64_t total() const { return buffers + internal; }
};

/// What the parts of one device share. Buffers keep it alive, so they may outlive their Device.
struct Core {
  // First: callbacks use them until the device is gone.
  ErrorState errors;
  std::unique_ptr<BlobCache> blobs;
  AdapterInfo info;
  Memory memory;
  wgpu::Instance instance;
  wgpu::Device device;
  wgpu::Queue queue;
  BindGroupCache groups;
  uint64_t next_buffer_id = 1;
  bool pretend_exhausted = false;  ///< for tests: the next buffers find no device memory

  ~Core();
  /// Waits for one future; throws if the device is lost meanwhile.
  void wait(wgpu::Future future);
  void wait_idle();
  void check() { errors.check(info.name); }
  /// Null where memory is exhausted; other failures throw.
  wgpu::Buffer try_create_buffer(std::string_view label, uint64_t bytes, wgpu::BufferUsage usage,
                                 bool mapped);
};

/// A buffer that the device holds for itself. Owns it and its place in the accounting.
class InternalBuffer {
 public:
  InternalBuffer() = default;
  InternalBuffer(Core& core, std::string_view label, uint64_t bytes, wgpu::BufferUsage usage,
                 bool mapped = false);
  InternalBuffer(InternalBuffer&& other) noexcept;
  InternalBuffer& operator=(InternalBuffer&& other) noexcept;
  ~InternalBuffer();

  const wgpu::Buffer& handle() const { return handle_; }
  uint64_t size() const { return bytes_; }

 private:
  Core* core_ = nullptr;
  wgpu::Buffer handle_;
  uint64_t bytes_ = 0;
};

/// Owns a buffer of a caller; see gpu::Buffer.
struct Buffer::Impl {
  std::shared_ptr<Core> core;
  wgpu::Buffer handle;
  uint64_t size = 0;
  uint64_t id = 0;
  BindGroupCache::Uses uses;

  ~Impl();
};

}  // namespace wgrad::gpu
