#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "gpu/device.h"
#include "ops/context.h"
#include "ops/tensor.h"

/// How operations check their tensors and reach their kernels.
namespace wgrad::ops {

/// Throws unless the tensor has this type and shape: "rms_norm_forward: weight is f32[8]; expected
/// f32[16]".
void expect_tensor(std::string_view function, std::string_view name, const Tensor& tensor,
                   DType dtype, const Shape& shape);
/// The same where only the number of elements matters.
void expect_elements(std::string_view function, std::string_view name, const Tensor& tensor,
                     DType dtype, int64_t count);
/// Throws unless the tensor is a matrix of this type.
void expect_matrix(std::string_view function, std::string_view name, const Tensor& tensor,
                   DType dtype);

/// WGSL for kernels written on Vec: vectors of four elements where every length is a multiple of
/// four, else single ones.
inline int64_t vector_lanes(int64_t length) { return length % 4 == 0 ? 4 : 1; }
const std::string& vector_prelude(int64_t lanes);

/// What a device uses to reduce over a workgroup: subgroups where all have one size.
bool reduces_by_subgroups(const gpu::Features& features);
/// vector_prelude and row_sum / row_max.
std::string reduction_prelude(const gpu::Features& features, int64_t lanes);

/// A tensor as a kernel's binding.
struct Argument {
  const Tensor& tensor;
  bool written;
};
inline Argument in(const Tensor& tensor) { return {tensor, false}; }
inline Argument out(const Tensor& tensor) { return {tensor, true}; }

/// Records one dispatch; a plan only notes the kernel. Reports a binding that is not aligned,
/// exceeds the device's limit, or is written while the same storage is read.
void launch(Context& ctx, const gpu::KernelSpec& kernel, std::span<const Argument> arguments,
            std::span<const std::byte> parameters, gpu::Workgroups workgroups);

template <typename Params>
void launch(Context& ctx, const gpu::KernelSpec& kernel, std::span<const Argument> arguments,
            const Params& params, gpu::Workgroups workgroups) {
  static_assert(sizeof(Params) % 4 == 0);
  launch(ctx, kernel, arguments, std::as_bytes(std::span<const Params>(&params, 1)), workgroups);
}
template <typename Params>
void launch(Context& ctx, const gpu::KernelSpec& kernel, std::initializer_list<Argument> arguments,
            const Params& params, gpu::Workgroups workgroups) {
  launch(ctx, kernel, std::span(arguments.begin(), arguments.size()), params, workgroups);
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Workgroups of 256 for `count` invocations, folded where they pass the limit on a dimension.
inline gpu::Workgroups invocations(int64_t count) {
  return gpu::fold_workgroups(static_cast<uint64_t>(ceil_div(count, 256)));
}
inline gpu::Workgroups groups(int64_t count) {
  return gpu::fold_workgroups(static_cast<uint64_t>(count));
}

/// Rows that one binding holds: all `rows`, or a multiple of `granule`, so that each part starts
/// at a multiple of 256 bytes. Throws where not even `granule` rows fit.
int64_t rows_per_binding(const Context& ctx, std::string_view function, int64_t rows,
                         int64_t row_bytes, int64_t granule = 64);

/// Calls body(begin, end) for the parts of [0, rows) that fit a binding.
template <typename Body>
void for_row_parts(const Context& ctx, std::string_view function, int64_t rows, int64_t row_bytes,
                   const Body& body) {
  const int64_t part = rows_per_binding(ctx, function, rows, row_bytes);
  for (int64_t begin = 0; begin < rows; begin += part) body(begin, std::min(rows, begin + part));
}

}  // namespace wgrad::ops
