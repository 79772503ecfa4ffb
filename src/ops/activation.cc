#include "cpu/activation.h"

#include <string>

#include "gpu/kernel_text.h"
#include "ops/elementwise.h"
#include "ops/launch.h"

namespace wgrad::ops {
namespace {

// Mirrors Params of activation.wgsl.
struct Params {
  uint32_t n;
};
static_assert(sizeof(Params) == 4);

gpu::KernelSpec kernel_for(std::string_view entry_point, int64_t n,
                           Activation activation = Activation::kSilu) {
  gpu::KernelSpec kernel;
  kernel.source = "activation";
  kernel.entry_point = entry_point;
  kernel.prelude = vector_prelude(vector_lanes(n)) + std::string(activation_text(activation));
  return kernel;
}

/// Vecs that an invocation of activation.wgsl takes.
constexpr int64_t kRun = 2, kGatedBackwardRun = 1;

/// Calls body(part, params, workgroups) for the parts of n elements that fit a binding, where
/// part(tensor) is the tensor's part and an invocation takes `run` Vecs.
template <typename Body>
void for_parts(const Context& ctx, std::string_view function, int64_t n, int64_t run,
               const Body& body) {
  for_row_parts(ctx, function, n, 4, [&](int64_t begin, int64_t end) {
    const int64_t vecs = (end - begin) / vector_lanes(n);
    body([&](const Tensor& t) { return t.flat(begin, end - begin); },
         Params{static_cast<uint32_t>(vecs)}, invocations(ceil_div(vecs, run)));
  });
}

}  // namespace

std::string_view activation_text(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      break;
    case Activation::kGeluTanh:
      return gpu::kernel_source("lib_gelu_tanh");
    case Activation::kGelu:
      return gpu::kernel_source("lib_gelu");
  }
  return gpu::kernel_source("lib_silu");
}

void silu_forward(Context& ctx, const Tensor& x, const Tensor& y) {
  constexpr std::string_view kName = "silu_forward";
  const int64_t n = x.size();
  expect_elements(kName, "x", x, DType::kF32, n);
  expect_elements(kName, "y", y, DType::kF32, n);
  if (n == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::silu_forward(x.data<float>(), y.data<float>(), n);
    return;
  }
  const gpu::KernelSpec kernel = kernel_for(kName, n);
  for_parts(ctx, kName, n, kRun, [&](const auto& part, Params params, gpu::Workgroups workgroups) {
    launch(ctx, kernel, {in(part(x)), out(part(y))}, params, workgroups);
  });
}

void silu_backward(Context& ctx, const Tensor& x, const Tensor& grad_y, const Tensor& grad_x) {
  constexpr std::string_view kName = "silu_backward";
  const int64_t n = x.size();
  expect_elements(kName, "x", x, DType::kF32, n);
  expect_elements(kName, "grad_y", grad_y, DType::kF32, n);
  expect_elements(kName, "grad_x", grad_x, DType::kF32, n);
  if (n == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::silu_backward(x.data<float>(), grad_y.data<float>(), grad_x.data<float>(), n);
    return;
  }
  const gpu::KernelSpec kernel = kernel_for(kName, n);
  for_parts(ctx, kName, n, kRun, [&](const auto& part, Params params, gpu::Workgroups workgroups) {
    launch(ctx, kernel, {in(part(x)), in(part(grad_y)), out(part(grad_x))}, params, workgroups);
  });
}

void gated_forward(Context& ctx, Activation activation, const Tensor& gate, const Tensor& up,
                   const Tensor& y) {
  constexpr std::string_view kName = "gated_forward";
  const int64_t n = gate.size();
  expect_elements(kName, "gate", gate, DType::kF32, n);
  expect_elements(kName, "up", up, DType::kF32, n);
  expect_elements(kName, "y", y, DType::kF32, n);
  if (n == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::gated_forward(activation, gate.data<float>(), up.data<float>(), y.data<float>(), n);
    return;
  }
  const gpu::KernelSpec kernel = kernel_for(kName, n, activation);
  for_parts(ctx, kName, n, kRun, [&](const auto& part, Params params, gpu::Workgroups workgroups) {
    launch(ctx, kernel, {in(part(gate)), in(part(up)), out(part(y))}, params, workgroups);
  });
}

void gated_backward(Context& ctx, Activation activation, const Tensor& gate, const Tensor& up,
                    const Tensor& grad_y, const Tensor& grad_gate, const Tensor& grad_up) {
  constexpr std::string_view kName = "gated_backward";
  const int64_t n = gate.size();
  expect_elements(kName, "gate", gate, DType::kF32, n);
  expect_elements(kName, "up", up, DType::kF32, n);
  expect_elements(kName, "grad_y", grad_y, DType::kF32, n);
  expect_elements(kName, "grad_gate", grad_gate, DType::kF32, n);
  expect_elements(kName, "grad_up", grad_up, DType::kF32, n);
  if (n == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::gated_backward(activation, gate.data<float>(), up.data<float>(), grad_y.data<float>(),
                        grad_gate.data<float>(), grad_up.data<float>(), n);
    return;
  }
  const gpu::KernelSpec kernel = kernel_for(kName, n, activation);
  for_parts(ctx, kName, n, kGatedBackwardRun,
            [&](const auto& part, Params params, gpu::Workgroups workgroups) {
              launch(ctx, kernel,
                     {in(part(gate)), in(part(up)), in(part(grad_y)), out(part(grad_gate)),
                      out(part(grad_up))},
                     params, workgroups);
            });
}

}  // namespace wgrad::ops
