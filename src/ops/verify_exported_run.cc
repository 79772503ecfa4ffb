#include <cstddef>
#include <span>

#include "ops/kernel_runner.h"
#include "ops/verify_exported.h"
#include "ops/verify_families.h"

namespace wgrad::ops {
namespace {

void run_by_table(Context& ctx, const std::string& name, ExportedBuffers& buffers,
                  const ExportedFields& fields) {
  const Kernel& kernel = kernel_named(name);
  std::vector<std::span<std::byte>> bytes;
  for (const KernelBinding& b : kernel.bindings) {
    bytes.push_back(std::as_writable_bytes(std::span(buffers.at(std::string(b.name)))));
  }
  run_kernel(ctx.device(), kernel, bytes, fields);
}

}  // namespace

void add_exported_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases) {
  if (ctx.modelled() != DeviceKind::kGpu || level == VerifyLevel::kQuick) return;
  for (const ExportedCase& c : exported_cases()) {
    cases.push_back({"exported " + std::string(c.kernels), std::string(c.what), [c](Context& on) {
                       return run_exported(c, [&](const std::string& name, ExportedBuffers& buffers,
                                                  const ExportedFields& fields) {
                         run_by_table(on, name, buffers, fields);
                       });
                     }});
  }
}

}  // namespace wgrad::ops
