#include "ops/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "ops/storage.h"
#include "wgrad/error.h"

namespace wgrad {

int64_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 2;
    case DType::kU8:
      return 1;
    default:
      return 4;
  }
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kU32:
      return "u32";
    case DType::kI32:
      return "i32";
    case DType::kU8:
      return "u8";
  }
  return "?";
}

Tensor::Tensor(std::shared_ptr<Storage> storage, int64_t byte_offset, Shape shape, DType dtype)
    : storage_(std::move(storage)),
      byte_offset_(byte_offset),
      shape_(std::move(shape)),
      dtype_(dtype) {}

int64_t Tensor::size() const {
  if (!storage_) return 0;
  int64_t n = 1;
  for (int64_t d : shape_) n *= d;
  return n;
}

std::string Tensor::describe() const {
  if (!storage_) return "empty";
  return fmt::format("{}[{}]", dtype_name(dtype_), fmt::join(shape_, ", "));
}

Tensor Tensor::reshape(Shape shape) const {
  Tensor t(storage_, byte_offset_, std::move(shape), dtype_);
  if (t.size() != size()) {
    throw runtime_failure("reshape", describe() + " to " + t.describe(),
                          "expected the same number of elements");
  }
  return t;
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  if (rank() == 0 || begin < 0 || end < begin || end > shape_[0]) {
    throw runtime_failure("rows", fmt::format("[{}, {}) of {}", begin, end, describe()),
                          "expected a range within the outermost dimension");
  }
  int64_t row_bytes = dtype_size(dtype_);
  for (size_t i = 1; i < shape_.size(); ++i) row_bytes *= shape_[i];
  Shape shape = shape_;
  shape[0] = end - begin;
  return Tensor(storage_, byte_offset_ + begin * row_bytes, std::move(shape), dtype_);
}

Tensor Tensor::flat(int64_t begin, int64_t count) const {
  if (begin < 0 || count < 0 || begin + count > size()) {
    throw runtime_failure("flat", fmt::format("{} elements at {} of {}", count, begin, describe()),
                          "expected a range within the tensor");
  }
  return Tensor(storage_, byte_offset_ + begin * dtype_size(dtype_), {count}, dtype_);
}

gpu::Binding Tensor::binding() const {
  if (!storage_ || !storage_->buffer) {
    throw runtime_failure("binding", describe() + (storage_ ? " of " + storage_->label : ""),
                          "expected a tensor on the GPU");
  }
  // Bindings are multiples of 4 bytes; storage is reserved in multiples of 256, so rounding up
  // stays inside it.
  return {&*storage_->buffer, static_cast<uint64_t>(byte_offset_),
          static_cast<uint64_t>((bytes() + 3) / 4 * 4)};
}

void* Tensor::host_address() const {
  if (!storage_ || !storage_->host) {
    throw runtime_failure("data", describe() + (storage_ ? " of " + storage_->label : ""),
                          "expected a tensor in host memory");
  }
  return storage_->host + byte_offset_;
}

}  // namespace wgrad
