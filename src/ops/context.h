#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "gpu/device.h"
#include "ops/tensor.h"

namespace wgrad {

enum class DeviceKind : uint8_t {
  kCpu,   ///< runs at once on the host
  kGpu,   ///< records for a WebGPU device
  kPlan,  ///< runs nothing, counts memory: the same step recorded here gives its exact peak
};

/// Operand type of the large matrix products. Accumulation and everything else is f32.
enum class ComputeType : uint8_t { kF32, kF16 };

/// A device with its memory. Everything an operation needs beyond its tensors. Not thread-safe.
class Context {
 public:
  struct Options {
    ComputeType compute = ComputeType::kF32;
    /// Refuse to allocate past this many bytes (0: what the device allows), naming the label.
    int64_t memory_limit = 0;
  };

  static std::unique_ptr<Context> cpu(const Options& options);
  static std::unique_ptr<Context> gpu(const gpu::DeviceOptions& device, const Options& options);
  /// A plan for the given kind of device: allocations are rounded and pooled as that kind does.
  static std::unique_ptr<Context> plan(DeviceKind modelled, const gpu::Limits& limits,
                                       const gpu::Features& features, const Options& options);
  ~Context();

  DeviceKind kind() const { return kind_; }
  /// What a plan stands for; elsewhere the same as kind().
  DeviceKind modelled() const { return modelled_; }
  ComputeType compute() const { return options_.compute; }
  /// From the next operation on.
  void set_compute(ComputeType compute) { options_.compute = compute; }
  const gpu::Features& features() const { return features_; }
  const gpu::Limits& limits() const { return limits_; }
  /// The device; only where kind() is kGpu.
  gpu::Device& device();
  std::string device_name() const;

  /// Memory comes from the pool or is made new; contents are undefined. Labels name it in errors
  /// and in the plan's table.
  Tensor allocate(Shape shape, DType dtype, std::string_view label);
  Tensor allocate_zeroed(Shape shape, DType dtype, std::string_view label);
  /// A CPU tensor over memory that `keep_alive` owns (a mapped file). CPU contexts only.
  Tensor wrap_host(const void* data, Shape shape, DType dtype,
                   std::shared_ptr<const void> keep_alive);

  void upload(const Tensor& to, std::span<const std::byte> data);
  template <typename T>
  void upload(const Tensor& to, std::span<const T> data) {
    upload(to, std::as_bytes(data));
  }
  /// A new tensor with these contents.
  template <typename T>
  Tensor make(Shape shape, DType dtype, std::span<const T> data, std::string_view label) {
    Tensor t = allocate(std::move(shape), dtype, label);
    upload(t, std::as_bytes(data));
    return t;
  }
  /// Waits for the work before it. In a plan the bytes are zero.
  void read(const Tensor& from, std::span<std::byte> into);
  template <typename T>
  std::vector<T> read(const Tensor& from) {
    std::vector<T> out(static_cast<size_t>(from.size()));
    read(from, std::as_writable_bytes(std::span<T>(out)));
    return out;
  }
  void submit();
  void wait();

  /// Bytes of tensors alive, and with what the pool holds.
  int64_t live_bytes() const;
  int64_t reserved_bytes() const;
  int64_t peak_bytes() const;  ///< of reserved_bytes()
  void reset_peak();
  /// Gives pooled memory back to the system.
  void trim();
  /// Peak by label prefix (the part before '/'), for the plan's table.
  std::map<std::string, int64_t> bytes_by_label() const;

  /// In a plan: the kernels that the work so far would need.
  std::vector<gpu::KernelSpec> planned_kernels() const;
  /// For the operations: notes one of them.
  void plan_kernel(const gpu::KernelSpec& kernel);

 private:
  friend struct Storage;
  struct Pool;
  Context(DeviceKind kind, DeviceKind modelled, const Options& options);

  DeviceKind kind_, modelled_;
  Options options_;
  gpu::Features features_;
  gpu::Limits limits_;
  std::unique_ptr<gpu::Device> device_;
  std::unique_ptr<Pool> pool_;
  std::unordered_set<gpu::KernelSpec, gpu::KernelSpecHash> planned_kernels_;
};

}  // namespace wgrad
