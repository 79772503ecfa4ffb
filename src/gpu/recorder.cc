#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "gpu/device_impl.h"
#include "wgrad/error.h"

namespace wgrad::gpu {
namespace {

uint64_t round_up_4(uint64_t bytes) { return (bytes + 3) & ~uint64_t{3}; }

[[noreturn]] void refuse(const Pipeline& pipeline, std::string_view seen,
                         std::string_view expected) {
  throw runtime_failure(fmt::format("kernel '{}'", pipeline.name), seen, expected);
}

/// What WebGPU would reject, and what a kernel's text and its caller must agree on. Cheap enough
/// for every dispatch, since Dawn's own validation is off.
void check_dispatch(const AdapterInfo& info, const Pipeline& pipeline,
                    std::span<const Binding> bindings, uint32_t writable,
                    std::span<const std::byte> parameters, Workgroups groups) {
  const WgslInterface& kernel = pipeline.interface;
  if (bindings.size() != kernel.storage_count) {
    refuse(pipeline, fmt::format("{} bindings were given", bindings.size()),
           fmt::format("its text has {}", kernel.storage_count));
  }
  if ((writable & kernel.used) != kernel.writable) {
    refuse(pipeline, fmt::format("bindings marked writable: {:#b}", writable),
           fmt::format("its text has read_write at {:#b}", kernel.writable));
  }
  if (kernel.has_uniform == parameters.empty() || parameters.size() > kParameterStride ||
      parameters.size() % 4 != 0) {
    refuse(pipeline, fmt::format("{} bytes of parameters", parameters.size()),
           kernel.has_uniform ? "a multiple of 4, from 4 to 256" : "its text has no uniform");
  }
  for (const Binding& b : bindings) {
    check_range(pipeline.name.c_str(), b, info.limits.storage_offset_alignment);
    if (b.size == 0 || b.size % 4 != 0 || b.size > info.limits.max_binding_size) {
      refuse(pipeline, fmt::format("a binding of {} bytes", b.size),
             fmt::format("a multiple of 4, from 4 to {}", info.limits.max_binding_size));
    }
  }
  const uint32_t most = info.limits.max_workgroups_per_dimension;
  if (groups.x > most || groups.y > most || groups.z > most) {
    refuse(pipeline, fmt::format("{} x {} x {} workgroups", groups.x, groups.y, groups.z),
           fmt::format("at most {} in a dimension", most));
  }
}

}  // namespace

wgpu::CommandEncoder& Device::Impl::open_encoder() {
  end_pass();
  if (!encoder) encoder = core->device.CreateCommandEncoder();
  return encoder;
}

wgpu::ComputePassEncoder& Device::Impl::open_pass(const Pipeline& next) {
  if (timing.active() && (!pass || timing.each_dispatch())) {
    open_encoder();
    const wgpu::PassTimestampWrites writes = timing.next(next.name);
    wgpu::ComputePassDescriptor descriptor;
    descriptor.timestampWrites = &writes;
    pass = encoder.BeginComputePass(&descriptor);
  } else if (!pass) {
    pass = open_encoder().BeginComputePass();
  }
  if (pass_pipeline != &next) {
    pass.SetPipeline(next.handle);
    pass_pipeline = &next;
  }
  return pass;
}

void Device::Impl::end_pass() {
  if (!pass) return;
  pass.End();
  pass = nullptr;
  pass_pipeline = nullptr;
}

uint32_t Device::Impl::add_parameters(std::span<const std::byte> bytes) {
  const uint32_t offset = parameter_bytes;
  std::memcpy(parameter_data.data() + offset, bytes.data(), bytes.size());
  parameter_bytes += kParameterStride;
  return offset;
}

void Device::Impl::submit() {
  core->check();
  end_pass();
  if (!encoder) return;
  const uint64_t stamps = timing.resolve(*core, readback, encoder);
  wgpu::CommandBuffer commands = encoder.Finish();
  encoder = nullptr;
  staging.before_submit();
  if (parameter_bytes > 0) {
    core->queue.WriteBuffer(parameters.handle(), 0, parameter_data.data(), parameter_bytes);
  }
  core->queue.Submit(1, &commands);
  parameter_bytes = recorded = 0;
  ++submits;
  staging.after_submit(*core);
  if (stamps != 0) readback.submitted(stamps);
  core->instance.ProcessEvents();
  core->check();
}

void Device::dispatch(const KernelSpec& kernel, std::span<const Binding> bindings,
                      uint32_t writable, std::span<const std::byte> parameters,
                      Workgroups workgroups) {
  Impl& d = *impl_;
  d.core->check();
  const Pipeline& pipeline = d.pipelines.get(*d.core, kernel);
  check_dispatch(d.core->info, pipeline, bindings, writable, parameters, workgroups);
  if (workgroups.x == 0 || workgroups.y == 0 || workgroups.z == 0) return;

  const wgpu::BindGroup& group = d.core->groups.get(d.core->device, *pipeline.layout, bindings,
                                                    d.parameters.handle(), kParameterStride);
  wgpu::ComputePassEncoder& pass = d.open_pass(pipeline);
  if (pipeline.interface.has_uniform) {
    const uint32_t offset = d.add_parameters(parameters);
    pass.SetBindGroup(0, group, 1, &offset);
  } else {
    pass.SetBindGroup(0, group);
  }
  pass.DispatchWorkgroups(workgroups.x, workgroups.y, workgroups.z);
  ++d.dispatches;
  if (++d.recorded < d.submit_at) return;
  d.submit();
  d.submit_at = std::min(2 * d.submit_at, kMaxRecorded);
}

void Device::copy(Binding from, Binding to) {
  impl_->core->check();
  check_range("copy", from, 4);
  check_range("copy", to, 4);
  if (from.size != to.size || from.size % 4 != 0) {
    throw runtime_failure("copy", fmt::format("{} bytes to {}", from.size, to.size),
                          "equal sizes, multiples of 4");
  }
  if (from.size == 0) return;
  wgpu::CommandEncoder& commands = impl_->open_encoder();
  const wgpu::Buffer &source = from.buffer->impl().handle, &target = to.buffer->impl().handle;
  if (from.buffer != to.buffer) {
    commands.CopyBufferToBuffer(source, from.offset, target, to.offset, to.size);
    return;
  }
  // WebGPU copies between two buffers only.
  const InternalBuffer between(*impl_->core, "copy", from.size,
                               wgpu::BufferUsage::CopySrc | wgpu::BufferUsage::CopyDst);
  commands.CopyBufferToBuffer(source, from.offset, between.handle(), 0, from.size);
  commands.CopyBufferToBuffer(between.handle(), 0, target, to.offset, to.size);
}

void Device::fill_zero(Binding range) {
  impl_->core->check();
  check_range("fill_zero", range, 4);
  if (range.size % 4 != 0) {
    throw runtime_failure("fill_zero", fmt::format("{} bytes", range.size), "a multiple of 4");
  }
  if (range.size == 0) return;
  impl_->open_encoder().ClearBuffer(range.buffer->impl().handle, range.offset, range.size);
}

void Device::upload(Binding to, std::span<const std::byte> data) {
  Impl& d = *impl_;
  d.core->check();
  check_range("upload", {to.buffer, to.offset, round_up_4(data.size())}, 4);
  if (to.size != data.size()) {
    throw runtime_failure("upload", fmt::format("{} bytes", data.size()),
                          fmt::format("{} as the range has", to.size));
  }
  uint64_t offset = to.offset;
  while (!data.empty()) {
    const Staging::Piece piece = d.staging.take(*d.core, round_up_4(data.size()));
    const size_t count = std::min<size_t>(data.size(), piece.size);
    std::memcpy(piece.data, data.data(), count);
    std::memset(piece.data + count, 0, piece.size - count);
    d.open_encoder().CopyBufferToBuffer(*piece.buffer, piece.offset, to.buffer->impl().handle,
                                        offset, piece.size);
    if (piece.fills_block) d.submit();
    data = data.subspan(count);
    offset += piece.size;
  }
}

void Device::submit() { impl_->submit(); }

uint64_t Device::Impl::start_read(const Binding& from) {
  core->check();
  const uint64_t bytes = round_up_4(from.size);
  check_range("read", {from.buffer, from.offset, bytes}, 4);
  const Readback::Target target = readback.open(*core, from.size);
  wgpu::CommandEncoder& commands = open_encoder();
  if (bytes > 0) {
    commands.CopyBufferToBuffer(from.buffer->impl().handle, from.offset, *target.buffer, 0, bytes);
  }
  submit();
  readback.submitted(target.ticket);
  return target.ticket;
}

uint64_t Device::start_read(Binding from) { return impl_->start_read(from); }

void Device::finish_read(uint64_t ticket, std::span<std::byte> into) {
  impl_->readback.finish(*impl_->core, ticket, into);
  impl_->submit_at = kFirstRecorded;
}

void Device::read(Binding from, std::span<std::byte> into) {
  if (from.size != into.size()) {
    throw runtime_failure("read", fmt::format("{} bytes into {}", from.size, into.size()),
                          "equal sizes");
  }
  // Large ranges come in pieces, one on its way while the one before is copied out.
  constexpr uint64_t kPiece = uint64_t{16} << 20;
  std::deque<std::pair<uint64_t, std::span<std::byte>>> on_the_way;
  auto finish_first = [&] {
    auto [ticket, part] = on_the_way.front();
    on_the_way.pop_front();
    finish_read(ticket, part);
  };
  for (uint64_t at = 0; at < from.size; at += kPiece) {
    const uint64_t bytes = std::min(kPiece, from.size - at);
    on_the_way.emplace_back(impl_->start_read({from.buffer, from.offset + at, bytes}),
                            into.subspan(at, bytes));
    if (on_the_way.size() == 2) finish_first();
  }
  while (!on_the_way.empty()) finish_first();
}

}  // namespace wgrad::gpu
