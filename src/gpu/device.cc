#include "gpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "gpu/adapter.h"
#include "gpu/device_impl.h"
#include "gpu/stderr_filter.h"
#include "wgrad/error.h"

namespace wgrad::gpu {
namespace {

constexpr uint64_t kCacheLimit = uint64_t{512} << 20;

void mask_features(Features& features, const DeviceOptions& options) {
  if (options.core_only) features = Features();
  if (!options.allow_f16) features.shader_f16 = false;
  if (!options.allow_subgroups) {
    features.subgroups = false;
    features.subgroup_min_size = features.subgroup_max_size = 0;
  }
  if (!options.allow_subgroup_matrix || !features.shader_f16 || !features.subgroups) {
    features.subgroup_matrix_f16 = false;
  }
}

std::vector<wgpu::FeatureName> feature_names(const Features& features) {
  std::vector<wgpu::FeatureName> names;
  if (features.shader_f16) names.push_back(wgpu::FeatureName::ShaderF16);
  if (features.subgroups) names.push_back(wgpu::FeatureName::Subgroups);
  if (features.timestamps) names.push_back(wgpu::FeatureName::TimestampQuery);
  if (features.subgroup_matrix_f16) {
    names.push_back(wgpu::FeatureName::ChromiumExperimentalSubgroupMatrix);
  }
  return names;
}

/// The adapter's best for what compute kernels meet; all else stays at WebGPU's defaults.
wgpu::Limits wanted_limits(const wgpu::Adapter& adapter) {
  wgpu::Limits best, wanted;
  adapter.GetLimits(&best);
  wanted.maxBufferSize = best.maxBufferSize;
  wanted.maxStorageBufferBindingSize = best.maxStorageBufferBindingSize;
  wanted.maxStorageBuffersPerShaderStage = best.maxStorageBuffersPerShaderStage;
  wanted.maxComputeWorkgroupStorageSize = best.maxComputeWorkgroupStorageSize;
  wanted.maxComputeInvocationsPerWorkgroup = best.maxComputeInvocationsPerWorkgroup;
  wanted.maxComputeWorkgroupSizeX = best.maxComputeWorkgroupSizeX;
  wanted.maxComputeWorkgroupSizeY = best.maxComputeWorkgroupSizeY;
  wanted.maxComputeWorkgroupSizeZ = best.maxComputeWorkgroupSizeZ;
  wanted.maxComputeWorkgroupsPerDimension = best.maxComputeWorkgroupsPerDimension;
  return wanted;
}

void set_callbacks(wgpu::DeviceDescriptor& descriptor, ErrorState* errors) {
  descriptor.SetUncapturedErrorCallback(
      [](const wgpu::Device&, wgpu::ErrorType, wgpu::StringView message, ErrorState* state) {
        state->record(view(message));
      },
      errors);
  descriptor.SetDeviceLostCallback(
      wgpu::CallbackMode::AllowSpontaneous,
      [](const wgpu::Device&, wgpu::DeviceLostReason reason, wgpu::StringView message,
         ErrorState* state) {
        if (reason == wgpu::DeviceLostReason::CallbackCancelled) return;
        state->record_lost(view(message));
      },
      errors);
}

std::span<const std::byte> bytes_of(const uint8_t* data, size_t size) {
  return std::as_bytes(std::span(data, size));
}

size_t load_blob(size_t key_size, const uint8_t* key, size_t value_size, uint8_t* value,
                 void* blobs, void*) {
  return static_cast<const BlobCache*>(blobs)->load(
      bytes_of(key, key_size), std::as_writable_bytes(std::span(value, value_size)));
}

void store_blob(size_t key_size, const uint8_t* key, size_t value_size, const uint8_t* value,
                void* blobs, void*) {
  static_cast<const BlobCache*>(blobs)->store(bytes_of(key, key_size), bytes_of(value, value_size));
}

/// In Dawn's C form: the C++ one of these callbacks does not compile.
WGPUDawnCacheDeviceDescriptor cache_descriptor(BlobCache* blobs) {
  WGPUDawnCacheDeviceDescriptor cache = WGPU_DAWN_CACHE_DEVICE_DESCRIPTOR_INIT;
  cache.dawnLoadCacheDataCallbackInfo.callback = load_blob;
  cache.dawnLoadCacheDataCallbackInfo.userdata1 = blobs;
  cache.dawnStoreCacheDataCallbackInfo.callback = store_blob;
  cache.dawnStoreCacheDataCallbackInfo.userdata1 = blobs;
  return cache;
}

wgpu::Device create_device(const wgpu::Adapter& adapter, const Features& features,
                           const DeviceOptions& options, Core& core) {
  std::vector<const char*> on(std::begin(kToggles), std::end(kToggles));
  if (!options.checked) {
    on.insert(on.end(), {"disable_robustness", "disable_workgroup_init",
                         "disable_polyfills_on_integer_div_and_mod", "skip_validation"});
  }
  const char* off[] = {"timestamp_quantization"};
  wgpu::DawnTogglesDescriptor toggles;
  toggles.enabledToggleCount = on.size();
  toggles.enabledToggles = on.data();
  toggles.disabledToggleCount = std::size(off);
  toggles.disabledToggles = off;

  const std::vector<wgpu::FeatureName> names = feature_names(features);
  const wgpu::Limits limits = wanted_limits(adapter);
  WGPUDawnCacheDeviceDescriptor cache = cache_descriptor(core.blobs.get());
  toggles.nextInChain = reinterpret_cast<wgpu::ChainedStruct*>(&cache.chain);
  wgpu::DeviceDescriptor descriptor;
  descriptor.nextInChain = &toggles;
  descriptor.requiredFeatureCount = names.size();
  descriptor.requiredFeatures = names.data();
  if (!options.core_only) descriptor.requiredLimits = &limits;
  set_callbacks(descriptor, &core.errors);
  return adapter.CreateDevice(&descriptor);
}

std::shared_ptr<Core> open_core(const DeviceOptions& options) {
  auto core = std::make_shared<Core>();
  core->instance = create_instance();
  Candidate chosen = choose(enumerate(core->instance), options.selector);
  core->info = chosen.info;
  mask_features(core->info.features, options);
  core->blobs = std::make_unique<BlobCache>(user_cache_folder(), kCacheLimit);
  {
    StderrFilter filter;
    core->device = create_device(chosen.adapter, core->info.features, options, *core);
  }
  if (!core->device) {
    core->check();
    throw runtime_failure(fmt::format("device '{}'", core->info.name), "it could not be opened", "",
                          "close other programs that use it, or update its driver");
  }
  core->queue = core->device.GetQueue();
  wgpu::Limits limits;
  core->device.GetLimits(&limits);
  core->info.limits = to_limits(limits);
  uint64_t& binding = core->info.limits.max_binding_size;
  if (options.max_binding_size != 0) binding = std::min(binding, options.max_binding_size);
  return core;
}

}  // namespace

Workgroups fold_workgroups(uint64_t count) {
  constexpr uint64_t kLimit = 65535;
  if (count <= kLimit) return {static_cast<uint32_t>(count), 1, 1};
  const uint64_t y = (count + kLimit - 1) / kLimit;
  if (y > kLimit) {
    throw runtime_failure("dispatch", fmt::format("{} workgroups", count),
                          fmt::format("at most {} fit two dimensions", kLimit * kLimit));
  }
  return {kLimit, static_cast<uint32_t>(y), 1};
}

Device::Impl::Impl(std::shared_ptr<Core> shared)
    : core(std::move(shared)),
      parameters(*core, "parameters", kMaxRecorded * kParameterStride,
                 wgpu::BufferUsage::Uniform | wgpu::BufferUsage::CopyDst) {}

Device::Device(const DeviceOptions& options) : impl_(std::make_unique<Impl>(open_core(options))) {}

Device::~Device() {
  // A failure that nobody asked for any more has no one to go to.
  try {
    if (!impl_->core->errors.is_lost()) impl_->core->wait_idle();
  } catch (const Error&) {
  }
  impl_->core->groups.clear();
}

const AdapterInfo& Device::info() const { return impl_->core->info; }

uint64_t Device::allocated_bytes() const { return impl_->core->memory.total(); }
uint64_t Device::peak_allocated_bytes() const { return impl_->core->memory.peak; }
void Device::reset_peak() { impl_->core->memory.peak = impl_->core->memory.total(); }

Device::Statistics Device::statistics() const {
  Statistics s;
  s.dispatches = impl_->dispatches;
  s.submits = impl_->submits;
  s.pipelines = impl_->pipelines.size();
  s.bind_groups = impl_->core->groups.created();
  s.internal_bytes = impl_->core->memory.internal;
  return s;
}

void Device::wait() {
  impl_->submit();
  impl_->core->wait_idle();
  impl_->submit_at = kFirstRecorded;
}

void Device::compile(std::span<const KernelSpec> kernels) {
  impl_->core->check();
  impl_->pipelines.compile(*impl_->core, kernels);
}

void Device::start_timing(Timed timed) {
  impl_->submit();
  impl_->timing.start(*impl_->core, timed);
}

std::vector<DispatchTime> Device::take_times() {
  impl_->submit();
  return impl_->timing.take(*impl_->core, impl_->readback);
}

}  // namespace wgrad::gpu
