#include <cstring>

#include "ops/export_kernels.h"
#include "ops/verify_exported.h"
#include "ops/verify_families.h"
#include "ops/workgroup_expression.h"

namespace wgrad::ops {
namespace {

const ExportedKernel& kernel_named(const std::string& name) {
  for (const ExportedKernel& kernel : exported_kernels()) {
    if (kernel.name == name) return kernel;
  }
  throw runtime_failure("exported kernels", "no kernel " + name);
}

std::vector<std::byte> uniform_of(const ExportedKernel& kernel, const ExportedFields& fields) {
  std::vector<std::byte> bytes;
  for (const ExportedField& f : kernel.fields) {
    const double value = fields.at(std::string(f.name));
    const auto real = static_cast<float>(value);
    const auto whole = static_cast<uint32_t>(value);
    const auto* first = reinterpret_cast<const std::byte*>(
        f.is_f32 ? static_cast<const void*>(&real) : static_cast<const void*>(&whole));
    bytes.insert(bytes.end(), first, first + 4);
  }
  return bytes;
}

/// Dispatches a kernel by what the table of exported kernels says.
void run_kernel(Context& ctx, const std::string& name, ExportedBuffers& buffers,
                const ExportedFields& fields) {
  const ExportedKernel& kernel = kernel_named(name);
  gpu::Device& device = ctx.device();
  std::vector<gpu::Buffer> memory;
  memory.reserve(kernel.bindings.size());
  std::vector<gpu::Binding> bindings;
  uint32_t writable = 0;
  for (const ExportedBinding& b : kernel.bindings) {
    const std::vector<uint32_t>& words = buffers.at(std::string(b.name));
    memory.push_back(device.allocate(words.size() * 4, "verify"));
    if (b.written) writable |= 1u << bindings.size();
    bindings.push_back({&memory.back(), 0, words.size() * 4});
    device.upload(bindings.back(), std::as_bytes(std::span(words)));
  }
  const std::vector<std::byte> uniform = uniform_of(kernel, fields);
  for (const ExportedEntryPoint& entry : kernel.entry_points) {
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
    if (!kernel.bindings[i].written) continue;
    std::vector<uint32_t>& words = buffers.at(std::string(kernel.bindings[i].name));
    device.read(bindings[i], std::as_writable_bytes(std::span(words)));
  }
}

}  // namespace

void add_exported_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases) {
  if (ctx.modelled() != DeviceKind::kGpu || level == VerifyLevel::kQuick) return;
  for (const ExportedCase& c : exported_cases()) {
    cases.push_back({"exported " + std::string(c.kernels), std::string(c.what), [c](Context& on) {
                       return run_exported(c, [&](const std::string& name, ExportedBuffers& buffers,
                                                  const ExportedFields& fields) {
                         run_kernel(on, name, buffers, fields);
                       });
                     }});
  }
}

}  // namespace wgrad::ops
