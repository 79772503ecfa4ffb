#include "ops/kernel_runner.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "ops/workgroup_expression.h"

namespace wgrad {
namespace ops {
namespace {

std::vector<std::byte> uniform_of(const Kernel& kernel, const KernelFields& fields) {
  std::vector<std::byte> bytes;
  for (const KernelField& f : kernel.fields) {
    const double value = fields.at(std::string(f.name));
    const auto real = static_cast<float>(value);
    const auto whole = f.is_f32 ? uint32_t{0} : static_cast<uint32_t>(value);
    const auto* first = reinterpret_cast<const std::byte*>(
        f.is_f32 ? static_cast<const void*>(&real) : static_cast<const void*>(&whole));
    bytes.insert(bytes.end(), first, first + 4);
  }
  return bytes;
}

/// The fields with `pad`, which no kernel reads, where it was left out.
KernelFields checked_fields(const Kernel& kernel, const KernelFields& given) {
  KernelFields fields;
  for (const KernelField& f : kernel.fields) {
    const std::string name(f.name);
    const auto found = given.find(name);
    if (found == given.end() && name != "pad") {
      throw input_error(kernel.name, fmt::format("no field {}", name));
    }
    const double value = found == given.end() ? 0 : found->second;
    const double most = f.is_f32 ? double{std::numeric_limits<float>::max()}
                                 : double{std::numeric_limits<uint32_t>::max()};
    const bool fits = f.is_f32 ? std::abs(value) <= most
                               : value >= 0 && value <= most && value == std::floor(value);
    if (!fits) {
      throw input_error(kernel.name, fmt::format("{} is {}", name, value),
                        f.is_f32 ? "expected a finite f32" : "expected a whole number of 32 bits");
    }
    fields.emplace(name, value);
  }
  for (const auto& [name, value] : given) {
    if (!fields.contains(name)) throw input_error(kernel.name, "it has no field " + name);
  }
  return fields;
}

std::span<std::byte> bytes_of(KernelData& data) {
  return std::visit([](auto& values) { return std::as_writable_bytes(std::span(values)); }, data);
}

/// The buffers in the bindings' order.
std::vector<std::span<std::byte>> checked_buffers(const Kernel& kernel, KernelBuffers& given,
                                                  const KernelFields& fields) {
  std::vector<std::span<std::byte>> buffers;
  for (const KernelBinding& b : kernel.bindings) {
    const auto found = given.find(std::string(b.name));
    if (found == given.end()) {
      throw input_error(kernel.name, fmt::format("no buffer {}", b.name));
    }
    const std::span<std::byte> bytes = bytes_of(found->second);
    const uint64_t expected = WorkgroupExpression(b.elements, fields).value();
    if (expected == 0 || bytes.size() / 4 != expected) {
      throw input_error(kernel.name, fmt::format("{} has {} elements", b.name, bytes.size() / 4),
                        fmt::format("expected {} = {}, at least 1", b.elements, expected));
    }
    buffers.push_back(bytes);
  }
  for (const auto& [name, data] : given) {
    bool known = false;
    for (const KernelBinding& b : kernel.bindings) known = known || b.name == name;
    if (!known) throw input_error(kernel.name, "it has no buffer " + name);
  }
  return buffers;
}

}  // namespace

const Kernel& kernel_named(std::string_view name) {
  std::string names;
  for (const Kernel& kernel : kernels()) {
    if (kernel.name == name) return kernel;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", kernel.name);
  }
  throw input_error("kernels", fmt::format("there is no kernel {}", name), "expected " + names);
}

void run_kernel(gpu::Device& device, const Kernel& kernel,
                std::span<const std::span<std::byte>> buffers, const KernelFields& fields) {
  std::vector<gpu::Buffer> memory;
  memory.reserve(buffers.size());
  std::vector<gpu::Binding> bindings;
  uint32_t writable = 0;
  for (const std::span<std::byte>& bytes : buffers) {
    if (kernel.bindings[bindings.size()].written) writable |= 1u << bindings.size();
    memory.push_back(device.allocate(bytes.size(), kernel.name));
    bindings.push_back({&memory.back(), 0, bytes.size()});
    device.upload(bindings.back(), bytes);
  }
  const std::vector<std::byte> uniform = uniform_of(kernel, fields);
  for (const KernelEntryPoint& entry : kernel.entry_points) {
    gpu::KernelSpec spec;
    spec.source = kernel.name;
    spec.entry_point = entry.name;
    spec.generated_text = kernel.text();
    const auto count = [&](std::string_view text) {
      return static_cast<uint32_t>(WorkgroupExpression(text, fields).value());
    };
    device.dispatch(spec, bindings, writable, uniform,
                    {count(entry.x), count(entry.y), count(entry.z)});
  }
  for (size_t i = 0; i < bindings.size(); ++i) {
    if (kernel.bindings[i].written) device.read(bindings[i], buffers[i]);
  }
}

}  // namespace ops

struct KernelRunner::Impl {
  gpu::Device device;
};

KernelRunner::KernelRunner(const std::string& device)
    : impl_(new Impl{gpu::Device(gpu::DeviceOptions{.selector = device})}) {}
KernelRunner::KernelRunner(KernelRunner&&) noexcept = default;
KernelRunner& KernelRunner::operator=(KernelRunner&&) noexcept = default;
KernelRunner::~KernelRunner() = default;

std::string KernelRunner::device_name() const { return impl_->device.info().name; }

void KernelRunner::run(std::string_view kernel, KernelBuffers& buffers,
                       const KernelFields& fields) {
  const Kernel& found = ops::kernel_named(kernel);
  const KernelFields checked = ops::checked_fields(found, fields);
  ops::run_kernel(impl_->device, found, ops::checked_buffers(found, buffers, checked), checked);
}

}  // namespace wgrad
