#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/device.h"

namespace wgrad {

enum class DType : uint8_t { kF32, kF16, kU32, kI32, kU8 };

int64_t dtype_size(DType dtype);
std::string_view dtype_name(DType dtype);

using Shape = std::vector<int64_t>;

class Context;

/// Memory behind tensors: host memory, a device buffer, or (in a plan) only a count of bytes.
/// Owned jointly by the tensors that view it; returned to its context's pool by the last of them,
/// so no Storage may outlive its Context.
struct Storage;

/// A row-major array on a context's device. A cheap value: copies and views share the storage.
class Tensor {
 public:
  Tensor() = default;
  Tensor(std::shared_ptr<Storage> storage, int64_t byte_offset, Shape shape, DType dtype);

  explicit operator bool() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_[static_cast<size_t>(i < 0 ? i + rank() : i)]; }
  int rank() const { return static_cast<int>(shape_.size()); }
  int64_t size() const;  ///< number of elements
  int64_t bytes() const { return size() * dtype_size(dtype_); }
  DType dtype() const { return dtype_; }
  std::string describe() const;  ///< "f32[3, 4]"

  /// The same elements in another shape; the sizes must agree.
  Tensor reshape(Shape shape) const;
  /// Rows [begin, end) of the outermost dimension, shared.
  Tensor rows(int64_t begin, int64_t end) const;
  /// Elements [begin, begin + count) of the flat array as [count], shared.
  Tensor flat(int64_t begin, int64_t count) const;

  /// Host pointers; only for tensors of a CPU context.
  template <typename T>
  T* data() const {
    return static_cast<T*>(host_address());
  }
  /// The device range, for tensors of a GPU context. On the GPU a view used as a kernel's binding
  /// must start at a multiple of 256 bytes; ops report one that does not.
  gpu::Binding binding() const;

  const std::shared_ptr<Storage>& storage() const { return storage_; }
  int64_t byte_offset() const { return byte_offset_; }

 private:
  void* host_address() const;

  std::shared_ptr<Storage> storage_;
  int64_t byte_offset_ = 0;
  Shape shape_;
  DType dtype_ = DType::kF32;
};

}  // namespace wgrad
