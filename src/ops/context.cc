#include "ops/context.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "ops/pool.h"
#include "wgrad/error.h"

namespace wgrad {

Context::Context(DeviceKind kind, DeviceKind modelled, const Options& options)
    : kind_(kind), modelled_(modelled), options_(options), pool_(std::make_unique<Pool>(*this)) {}

Context::~Context() = default;

std::unique_ptr<Context> Context::cpu(const Options& options) {
  return std::unique_ptr<Context>(new Context(DeviceKind::kCpu, DeviceKind::kCpu, options));
}

std::unique_ptr<Context> Context::gpu(const gpu::DeviceOptions& device, const Options& options) {
  std::unique_ptr<Context> ctx(new Context(DeviceKind::kGpu, DeviceKind::kGpu, options));
  ctx->device_ = std::make_unique<gpu::Device>(device);
  ctx->features_ = ctx->device_->info().features;
  ctx->limits_ = ctx->device_->info().limits;
  return ctx;
}

std::unique_ptr<Context> Context::plan(DeviceKind modelled, const gpu::Limits& limits,
                                       const gpu::Features& features, const Options& options) {
  std::unique_ptr<Context> ctx(new Context(DeviceKind::kPlan, modelled, options));
  ctx->features_ = features;
  ctx->limits_ = limits;
  return ctx;
}

gpu::Device& Context::device() {
  if (!device_) throw runtime_failure("device", "this context has no GPU");
  return *device_;
}

std::string Context::device_name() const {
  switch (kind_) {
    case DeviceKind::kGpu:
      return device_->info().name;
    case DeviceKind::kCpu:
      return "CPU";
    case DeviceKind::kPlan:
      break;
  }
  return "plan";
}

Tensor Context::allocate(Shape shape, DType dtype, std::string_view label) {
  int64_t bytes = dtype_size(dtype);
  for (int64_t d : shape) {
    if (d < 0 || __builtin_mul_overflow(bytes, d, &bytes)) {
      throw runtime_failure(fmt::format("memory for {}", label),
                            "a size that does not fit in memory");
    }
  }
  return Tensor(pool_->take(bytes, label), 0, std::move(shape), dtype);
}

Tensor Context::allocate_zeroed(Shape shape, DType dtype, std::string_view label) {
  Tensor t = allocate(std::move(shape), dtype, label);
  if (kind_ == DeviceKind::kCpu) {
    std::memset(t.data<void>(), 0, static_cast<size_t>(t.bytes()));
  } else if (kind_ == DeviceKind::kGpu) {
    device_->fill_zero(t.binding());
  }
  return t;
}

Tensor Context::wrap_host(const void* data, Shape shape, DType dtype,
                          std::shared_ptr<const void> keep_alive) {
  auto storage = std::make_shared<Storage>();
  storage->context = this;
  storage->label = "mapped";
  if (kind_ == DeviceKind::kCpu) {
    storage->host = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  }
  storage->keep_alive = keep_alive ? std::move(keep_alive) : std::make_shared<int>(0);
  return Tensor(std::move(storage), 0, std::move(shape), dtype);
}

void Context::upload(const Tensor& to, std::span<const std::byte> data) {
  if (static_cast<int64_t>(data.size()) != to.bytes()) {
    throw runtime_failure("upload", fmt::format("{} bytes for {}", data.size(), to.describe()),
                          fmt::format("expected {} bytes", to.bytes()));
  }
  if (kind_ == DeviceKind::kCpu) {
    if (!data.empty()) std::memcpy(to.data<void>(), data.data(), data.size());
  } else if (kind_ == DeviceKind::kGpu) {
    device_->upload(to.binding(), data);
  }
}

void Context::read(const Tensor& from, std::span<std::byte> into) {
  if (static_cast<int64_t>(into.size()) != from.bytes()) {
    throw runtime_failure("read", fmt::format("{} into {} bytes", from.describe(), into.size()),
                          fmt::format("expected {} bytes", from.bytes()));
  }
  if (into.empty()) return;
  if (kind_ == DeviceKind::kCpu) {
    std::memcpy(into.data(), from.data<void>(), into.size());
  } else if (kind_ == DeviceKind::kGpu) {
    gpu::Binding range = from.binding();
    if (range.size == into.size()) {
      device_->read(range, into);
    } else {
      std::vector<std::byte> rounded(range.size);
      device_->read(range, rounded);
      std::memcpy(into.data(), rounded.data(), into.size());
    }
  } else {
    std::memset(into.data(), 0, into.size());
  }
}

void Context::submit() {
  if (device_) device_->submit();
}

void Context::wait() {
  if (device_) device_->wait();
}

int64_t Context::live_bytes() const { return pool_->live_bytes; }
int64_t Context::reserved_bytes() const { return pool_->live_bytes + pool_->idle_bytes; }
int64_t Context::peak_bytes() const { return pool_->peak_bytes; }
void Context::reset_peak() { pool_->peak_bytes = reserved_bytes(); }
void Context::trim() { pool_->trim(); }

std::map<std::string, int64_t> Context::bytes_by_label() const {
  std::map<std::string, int64_t> out;
  for (const auto& [label, use] : pool_->by_label) out[label] = use.peak;
  return out;
}

std::vector<gpu::KernelSpec> Context::planned_kernels() const {
  return {planned_kernels_.begin(), planned_kernels_.end()};
}

void Context::plan_kernel(const gpu::KernelSpec& kernel) { planned_kernels_.insert(kernel); }

}  // namespace wgrad
