#include "gpu/timing.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "wgrad/error.h"

namespace wgrad::gpu {

void Timing::start(Core& core, Timed timed) {
  if (!core.info.features.timestamps) {
    throw runtime_failure(fmt::format("device '{}'", core.info.name), "it has no timestamp queries",
                          "", "time whole submits instead");
  }
  if (!queries_) {
    wgpu::QuerySetDescriptor descriptor;
    descriptor.type = wgpu::QueryType::Timestamp;
    descriptor.count = 2 * capacity_;
    queries_ = core.device.CreateQuerySet(&descriptor);
    resolved_ = InternalBuffer(core, "timestamps", 2 * sizeof(uint64_t) * capacity_,
                               wgpu::BufferUsage::QueryResolve | wgpu::BufferUsage::CopySrc);
  }
  active_ = true;
  timed_ = timed;
}

wgpu::PassTimestampWrites Timing::next(const std::string& kernel) {
  wgpu::PassTimestampWrites writes;
  writes.querySet = queries_;
  writes.beginningOfPassWriteIndex = static_cast<uint32_t>(2 * kernels_.size());
  writes.endOfPassWriteIndex = writes.beginningOfPassWriteIndex + 1;
  kernels_.push_back(kernel);
  return writes;
}

uint64_t Timing::resolve(Core& core, Readback& readback, const wgpu::CommandEncoder& encoder) {
  if (kernels_.empty()) return 0;
  const uint32_t count = static_cast<uint32_t>(2 * kernels_.size());
  const uint64_t bytes = count * sizeof(uint64_t);
  Readback::Target target = readback.open(core, bytes);
  encoder.ResolveQuerySet(queries_, 0, count, resolved_.handle(), 0);
  encoder.CopyBufferToBuffer(resolved_.handle(), 0, *target.buffer, 0, bytes);
  batches_.push_back({target.ticket, std::exchange(kernels_, {})});
  return target.ticket;
}

std::vector<DispatchTime> Timing::take(Core& core, Readback& readback) {
  active_ = false;
  std::vector<DispatchTime> times;
  for (Batch& batch : std::exchange(batches_, {})) {
    std::vector<uint64_t> stamps(2 * batch.kernels.size());
    readback.finish(core, batch.ticket, std::as_writable_bytes(std::span<uint64_t>(stamps)));
    for (size_t i = 0; i < batch.kernels.size(); ++i) {
      const uint64_t begin = stamps[2 * i], end = stamps[2 * i + 1];
      const double nanoseconds = end > begin ? static_cast<double>(end - begin) : 0.0;
      times.push_back({std::move(batch.kernels[i]), nanoseconds * 1e-9});
    }
  }
  return times;
}

}  // namespace wgrad::gpu
