#include "ops/launch.h"

#include <fmt/format.h>

#include <array>

#include "gpu/kernel_text.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

/// Larger bindings gave wrong results on a device that allows them.
constexpr int64_t kLargestBinding = int64_t{1} << 30;

Error mismatch(std::string_view function, std::string_view name, const Tensor& tensor,
               const std::string& expected) {
  return runtime_failure(function, fmt::format("{} is {}", name, tensor.describe()),
                         "expected " + expected);
}

std::string describe(DType dtype, const Shape& shape) {
  std::string text = std::string(dtype_name(dtype)) + "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

void check_bindings(const Context& ctx, const gpu::KernelSpec& kernel,
                    std::span<const Argument> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Tensor& t = arguments[i].tensor;
    if (t.byte_offset() % ctx.limits().storage_offset_alignment != 0) {
      throw runtime_failure(
          kernel.entry_point,
          fmt::format("argument {} ({}) begins at byte {}", i, t.describe(), t.byte_offset()),
          fmt::format("expected a multiple of {}", ctx.limits().storage_offset_alignment));
    }
    if (static_cast<uint64_t>(t.bytes()) > ctx.limits().max_binding_size) {
      throw runtime_failure(
          kernel.entry_point,
          fmt::format("argument {} ({}) has {} bytes", i, t.describe(), t.bytes()),
          fmt::format("this device binds at most {}", ctx.limits().max_binding_size));
    }
    for (size_t j = 0; j < arguments.size(); ++j) {
      if (i != j && arguments[j].written && !arguments[i].written &&
          arguments[j].tensor.storage() == t.storage()) {
        throw runtime_failure(kernel.entry_point,
                              fmt::format("argument {} is written in the memory that argument {} "
                                          "({}) is read from",
                                          j, i, t.describe()),
                              "expected memory of its own");
      }
    }
  }
}

}  // namespace

void expect_tensor(std::string_view function, std::string_view name, const Tensor& tensor,
                   DType dtype, const Shape& shape) {
  if (!tensor || tensor.dtype() != dtype || tensor.shape() != shape) {
    throw mismatch(function, name, tensor, describe(dtype, shape));
  }
}

void expect_elements(std::string_view function, std::string_view name, const Tensor& tensor,
                     DType dtype, int64_t count) {
  if (!tensor || tensor.dtype() != dtype || tensor.size() != count) {
    throw mismatch(function, name, tensor, fmt::format("{} {}", count, dtype_name(dtype)));
  }
}

void expect_matrix(std::string_view function, std::string_view name, const Tensor& tensor,
                   DType dtype) {
  if (!tensor || tensor.dtype() != dtype || tensor.rank() != 2) {
    throw mismatch(function, name, tensor, fmt::format("a matrix of {}", dtype_name(dtype)));
  }
}

const std::string& vector_prelude(int64_t lanes) {
  static const std::string one(gpu::kernel_source("lib_vector1"));
  static const std::string four(gpu::kernel_source("lib_vector4"));
  return lanes == 4 ? four : one;
}

bool reduces_by_subgroups(const gpu::Features& features) {
  return features.subgroups && features.subgroup_min_size == features.subgroup_max_size &&
         features.subgroup_min_size > 0;
}

std::string reduction_prelude(const gpu::Features& features, int64_t lanes) {
  if (!reduces_by_subgroups(features)) {
    return vector_prelude(lanes) + std::string(gpu::kernel_source("lib_row_reduce_core"));
  }
  return fmt::format("enable subgroups;\nconst SUBGROUP: u32 = {}u;\n{}{}",
                     features.subgroup_min_size, vector_prelude(lanes),
                     gpu::kernel_source("lib_row_reduce_subgroups"));
}

void launch(Context& ctx, const gpu::KernelSpec& kernel, std::span<const Argument> arguments,
            std::span<const std::byte> parameters, gpu::Workgroups workgroups) {
  if (ctx.kind() == DeviceKind::kPlan) ctx.plan_kernel(kernel);
  if (ctx.kind() != DeviceKind::kGpu) return;
  check_bindings(ctx, kernel, arguments);
  std::array<gpu::Binding, 16> bindings;
  uint32_t writable = 0;
  size_t count = 0;
  for (const Argument& argument : arguments) {
    if (argument.written) writable |= 1u << count;
    bindings.at(count++) = argument.tensor.binding();
  }
  ctx.device().dispatch(kernel, std::span(bindings.data(), count), writable, parameters,
                        workgroups);
}

int64_t rows_per_binding(const Context& ctx, std::string_view function, int64_t rows,
                         int64_t row_bytes, int64_t granule) {
  if (ctx.modelled() == DeviceKind::kCpu) return std::max<int64_t>(rows, 1);
  const int64_t limit = static_cast<int64_t>(
      std::min<uint64_t>(ctx.limits().max_binding_size, static_cast<uint64_t>(kLargestBinding)));
  const int64_t fit = limit / std::max<int64_t>(row_bytes, 1);
  if (rows <= fit) return std::max<int64_t>(rows, 1);
  const int64_t part = fit / granule * granule;
  if (part == 0) {
    throw runtime_failure(
        function, fmt::format("rows of {} bytes", row_bytes),
        fmt::format("this device binds at most {} bytes, which must hold {} rows", limit, granule));
  }
  return part;
}

}  // namespace wgrad::ops
