#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpu/device_impl.h"
#include "wgrad/error.h"

namespace wgrad::gpu {
namespace {

constexpr std::string_view kMakeItFit =
    "lower --batch-size or --max-seq-len, or use --recompute block or --method qlora";

}  // namespace

Buffer::Buffer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Buffer::Buffer(Buffer&&) noexcept = default;
Buffer& Buffer::operator=(Buffer&&) noexcept = default;
Buffer::~Buffer() = default;
uint64_t Buffer::size() const { return impl_->size; }

Buffer::Impl::~Impl() {
  core->groups.forget(uses);
  core->memory.buffers -= size;
}

Buffer Device::allocate(uint64_t bytes, std::string_view label) {
  Core& core = *impl_->core;
  core.check();
  const std::string where = fmt::format("device '{}'", core.info.name);
  const uint64_t largest = core.info.limits.max_buffer_size & ~uint64_t{3};
  if (bytes > largest) {
    throw runtime_failure(where, fmt::format("'{}' needs {} bytes", label, bytes),
                          fmt::format("a buffer has at most {}", largest), kMakeItFit);
  }
  const uint64_t size = std::max<uint64_t>(4, (bytes + 3) & ~uint64_t{3});
  auto create = [&] {
    return core.try_create_buffer(
        label, size,
        wgpu::BufferUsage::Storage | wgpu::BufferUsage::CopySrc | wgpu::BufferUsage::CopyDst,
        /*mapped=*/false);
  };
  wgpu::Buffer handle = create();
  if (!handle) {
    // Memory of buffers that died comes back when the work that uses them is done.
    wait();
    core.instance.ProcessEvents();
    handle = create();
  }
  if (!handle) {
    throw runtime_failure(where,
                          fmt::format("out of memory for '{}': {} bytes, beside {} bytes in use",
                                      label, size, core.memory.total()),
                          "", kMakeItFit);
  }
  auto impl = std::make_unique<Buffer::Impl>();
  impl->core = impl_->core;
  impl->handle = std::move(handle);
  impl->size = size;
  impl->id = core.next_buffer_id++;
  core.memory.buffers += size;
  core.memory.peak = std::max(core.memory.peak, core.memory.total());
  return Buffer(std::move(impl));
}

void check_range(const char* where, const Binding& range, uint64_t alignment) {
  if (range.buffer == nullptr) throw runtime_failure(where, "a binding without a buffer");
  const uint64_t size = range.buffer->size();
  if (range.offset % alignment != 0 || range.offset > size || range.size > size - range.offset) {
    throw runtime_failure(
        where,
        fmt::format("bytes {} to {} of a buffer of {}", range.offset, range.offset + range.size,
                    size),
        fmt::format("a range inside it that starts at a multiple of {}", alignment));
  }
}

}  // namespace wgrad::gpu
