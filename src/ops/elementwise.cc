#include "ops/elementwise.h"

#include <fmt/format.h>

#include <cstring>

#include "cpu/elementwise.h"
#include "cpu/softmax.h"
#include "ops/launch.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

// Mirrors Params of elementwise.wgsl.
struct Params {
  uint32_t n;
  float factor;
};
static_assert(sizeof(Params) == 8);

// Mirrors Params of softmax.wgsl.
struct SoftmaxParams {
  uint32_t num_rows, row_len;
};
static_assert(sizeof(SoftmaxParams) == 8);

gpu::KernelSpec kernel_for(std::string_view entry_point, int64_t n) {
  gpu::KernelSpec kernel;
  kernel.source = "elementwise";
  kernel.entry_point = entry_point;
  kernel.prelude = vector_prelude(vector_lanes(n));
  return kernel;
}

gpu::KernelSpec softmax_kernel(const Context& ctx, std::string_view entry_point, int64_t n) {
  gpu::KernelSpec kernel;
  kernel.source = "softmax";
  kernel.entry_point = entry_point;
  kernel.prelude = reduction_prelude(ctx.features(), vector_lanes(n));
  return kernel;
}

/// Vecs that an invocation of elementwise.wgsl takes.
constexpr int64_t kRun = 4;

void expect_words(std::string_view function, const Tensor& x) {
  if (x && x.bytes() % 4 == 0) return;
  throw runtime_failure(function, x.describe(), "expected a multiple of 4 bytes");
}

/// Whether a kernel may copy: a device's own copies can be several times slower, but take any
/// offset and ranges of one buffer.
bool kernel_copies(const Context& ctx, const Tensor& from, const Tensor& to) {
  const int64_t alignment = static_cast<int64_t>(ctx.limits().storage_offset_alignment);
  return from.storage() != to.storage() && from.byte_offset() % alignment == 0 &&
         to.byte_offset() % alignment == 0;
}

void copy_by_kernel(Context& ctx, const Tensor& from, const Tensor& to) {
  const int64_t n = from.bytes() / 4;
  const Tensor x(from.storage(), from.byte_offset(), {n}, DType::kU32);
  const Tensor y(to.storage(), to.byte_offset(), {n}, DType::kU32);
  const gpu::KernelSpec kernel = kernel_for("copy", n);
  for_row_parts(ctx, "copy", n, 4, [&](int64_t begin, int64_t end) {
    const int64_t vecs = (end - begin) / vector_lanes(n);
    launch(ctx, kernel, {in(x.flat(begin, end - begin)), out(y.flat(begin, end - begin))},
           Params{static_cast<uint32_t>(vecs), 1.0f}, invocations(ceil_div(vecs, kRun)));
  });
}

/// The kernels of elementwise.wgsl that read x and factor, and set y or add to it.
void launch_scaled(Context& ctx, std::string_view name, const Tensor& x, float factor,
                   const Tensor& y) {
  const int64_t n = x.size();
  const gpu::KernelSpec kernel = kernel_for(name, n);
  for_row_parts(ctx, name, n, 4, [&](int64_t begin, int64_t end) {
    const int64_t vecs = (end - begin) / vector_lanes(n);
    launch(ctx, kernel, {in(x.flat(begin, end - begin)), out(y.flat(begin, end - begin))},
           Params{static_cast<uint32_t>(vecs), factor}, invocations(ceil_div(vecs, kRun)));
  });
}

}  // namespace

void add(Context& ctx, const Tensor& x, const Tensor& y) {
  constexpr std::string_view kName = "add";
  const int64_t n = x.size();
  expect_elements(kName, "x", x, DType::kF32, n);
  expect_elements(kName, "y", y, DType::kF32, n);
  if (n == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::add(y.data<float>(), x.data<float>(), n);
    return;
  }
  launch_scaled(ctx, kName, x, 1.0f, y);
}

void add_scaled(Context& ctx, const Tensor& x, float factor, const Tensor& y) {
  constexpr std::string_view kName = "add_scaled";
  const int64_t n = x.size();
  expect_elements(kName, "x", x, DType::kF32, n);
  expect_elements(kName, "y", y, DType::kF32, n);
  if (n == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::add_scaled(y.data<float>(), x.data<float>(), factor, n);
    return;
  }
  launch_scaled(ctx, kName, x, factor, y);
}

void scaled_copy(Context& ctx, const Tensor& x, float factor, const Tensor& y) {
  constexpr std::string_view kName = "scaled_copy";
  const int64_t n = x.size();
  expect_elements(kName, "x", x, DType::kF32, n);
  expect_elements(kName, "y", y, DType::kF32, n);
  if (n == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::scaled_copy(y.data<float>(), x.data<float>(), factor, n);
    return;
  }
  launch_scaled(ctx, kName, x, factor, y);
}

void scale(Context& ctx, const Tensor& x, float factor) {
  constexpr std::string_view kName = "scale";
  const int64_t n = x.size();
  expect_elements(kName, "x", x, DType::kF32, n);
  if (n == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::scale(x.data<float>(), factor, n);
    return;
  }
  const gpu::KernelSpec kernel = kernel_for(kName, n);
  for_row_parts(ctx, kName, n, 4, [&](int64_t begin, int64_t end) {
    const int64_t vecs = (end - begin) / vector_lanes(n);
    launch(ctx, kernel, {out(x.flat(begin, end - begin))},
           Params{static_cast<uint32_t>(vecs), factor}, invocations(ceil_div(vecs, kRun)));
  });
}

void fill_zero(Context& ctx, const Tensor& x) {
  expect_words("fill_zero", x);
  if (x.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    std::memset(x.data<void>(), 0, static_cast<size_t>(x.bytes()));
  } else if (ctx.kind() == DeviceKind::kGpu) {
    ctx.device().fill_zero(x.binding());
  }
}

void copy(Context& ctx, const Tensor& from, const Tensor& to) {
  expect_words("copy", from);
  expect_elements("copy", "to", to, from.dtype(), from.size());
  if (from.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    std::memmove(to.data<void>(), from.data<void>(), static_cast<size_t>(from.bytes()));
  } else if (kernel_copies(ctx, from, to)) {
    copy_by_kernel(ctx, from, to);
  } else if (ctx.kind() == DeviceKind::kGpu) {
    ctx.device().copy(from.binding(), to.binding());
  }
}

void softmax_forward(Context& ctx, const Tensor& x, const Tensor& y) {
  constexpr std::string_view kName = "softmax_forward";
  expect_matrix(kName, "x", x, DType::kF32);
  expect_tensor(kName, "y", y, DType::kF32, x.shape());
  const int64_t rows = x.dim(0), n = x.dim(1);
  if (x.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::softmax_forward(x.data<float>(), y.data<float>(), rows, n);
    return;
  }
  const gpu::KernelSpec kernel = softmax_kernel(ctx, kName, n);
  for_row_parts(ctx, kName, rows, n * 4, [&](int64_t begin, int64_t end) {
    launch(ctx, kernel, {in(x.rows(begin, end)), out(y.rows(begin, end))},
           SoftmaxParams{static_cast<uint32_t>(end - begin), static_cast<uint32_t>(n)},
           groups(end - begin));
  });
}

void softmax_backward(Context& ctx, const Tensor& y, const Tensor& grad_y, const Tensor& grad_x) {
  constexpr std::string_view kName = "softmax_backward";
  expect_matrix(kName, "y", y, DType::kF32);
  expect_tensor(kName, "grad_y", grad_y, DType::kF32, y.shape());
  expect_tensor(kName, "grad_x", grad_x, DType::kF32, y.shape());
  const int64_t rows = y.dim(0), n = y.dim(1);
  if (y.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::softmax_backward(y.data<float>(), grad_y.data<float>(), grad_x.data<float>(), rows, n);
    return;
  }
  const gpu::KernelSpec kernel = softmax_kernel(ctx, kName, n);
  for_row_parts(ctx, kName, rows, n * 4, [&](int64_t begin, int64_t end) {
    launch(ctx, kernel,
           {in(y.rows(begin, end)), in(grad_y.rows(begin, end)), out(grad_x.rows(begin, end))},
           SoftmaxParams{static_cast<uint32_t>(end - begin), static_cast<uint32_t>(n)},
           groups(end - begin));
  });
}

}  // namespace wgrad::ops
