#include "gpu/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>

#include "gpu/dawn_native.h"
#include "gpu/stderr_filter.h"
#include "wgrad/error.h"

namespace wgrad::gpu {
namespace {

wgpu::DawnTogglesDescriptor toggles() {
  wgpu::DawnTogglesDescriptor descriptor;
  descriptor.enabledToggleCount = std::size(kToggles);
  descriptor.enabledToggles = kToggles;
  return descriptor;
}

/// The backends that run compute at full speed; others show the same hardware once more.
const char* backend_name(wgpu::BackendType type) {
  switch (type) {
    case wgpu::BackendType::Vulkan:
      return "Vulkan";
    case wgpu::BackendType::Metal:
      return "Metal";
    case wgpu::BackendType::D3D12:
      return "D3D12";
    default:
      return nullptr;
  }
}

AdapterInfo::Type to_type(wgpu::AdapterType type) {
  switch (type) {
    case wgpu::AdapterType::DiscreteGPU:
      return AdapterInfo::Type::kDiscrete;
    case wgpu::AdapterType::IntegratedGPU:
      return AdapterInfo::Type::kIntegrated;
    case wgpu::AdapterType::CPU:
      return AdapterInfo::Type::kCpu;
    default:
      return AdapterInfo::Type::kUnknown;
  }
}

/// The struct is experimental and its layout has changed between versions of Dawn: a list whose
/// entries do not look like matrix shapes is not believed.
bool has_f16_matrix(const wgpu::AdapterPropertiesSubgroupMatrixConfigs& list) {
  bool found = false;
  for (size_t i = 0; i < list.configCount; ++i) {
    const wgpu::SubgroupMatrixConfig& c = list.configs[i];
    auto plausible_type = [](wgpu::SubgroupMatrixComponentType t) {
      return t >= wgpu::SubgroupMatrixComponentType::F32 &&
             t <= wgpu::SubgroupMatrixComponentType::I8;
    };
    auto plausible_size = [](uint32_t n) { return n >= 1 && n <= 1024; };
    if (!plausible_type(c.componentType) || !plausible_type(c.resultComponentType) ||
        !plausible_size(c.M) || !plausible_size(c.N) || !plausible_size(c.K)) {
      return false;
    }
    found |= c.componentType == wgpu::SubgroupMatrixComponentType::F16 &&
             c.resultComponentType == wgpu::SubgroupMatrixComponentType::F32 && c.M == 16 &&
             c.N == 16 && c.K == 16;
  }
  return found;
}

/// The largest heap of device-local memory; 0 where the driver does not say.
uint64_t device_memory(const wgpu::Adapter& adapter) {
  if (!adapter.HasFeature(wgpu::FeatureName::AdapterPropertiesMemoryHeaps)) return 0;
  wgpu::AdapterPropertiesMemoryHeaps heaps;
  wgpu::AdapterInfo info;
  info.nextInChain = &heaps;
  adapter.GetInfo(&info);
  uint64_t largest = 0;
  for (size_t i = 0; i < heaps.heapCount; ++i) {
    const wgpu::MemoryHeapInfo& heap = heaps.heapInfo[i];
    if (heap.properties & wgpu::HeapProperty::DeviceLocal) largest = std::max(largest, heap.size);
  }
  return largest;
}

AdapterInfo describe(const wgpu::Adapter& adapter, const wgpu::AdapterInfo& raw) {
  AdapterInfo info;
  info.name = view(raw.device);
  info.vendor = view(raw.vendor);
  info.architecture = view(raw.architecture);
  info.driver = view(raw.description);
  info.backend = backend_name(raw.backendType);
  info.type = to_type(raw.adapterType);
  info.memory_bytes = device_memory(adapter);

  Features& features = info.features;
  features.shader_f16 = adapter.HasFeature(wgpu::FeatureName::ShaderF16);
  features.subgroups = adapter.HasFeature(wgpu::FeatureName::Subgroups);
  features.timestamps = adapter.HasFeature(wgpu::FeatureName::TimestampQuery);
  if (features.subgroups) {
    features.subgroup_min_size = raw.subgroupMinSize;
    features.subgroup_max_size = raw.subgroupMaxSize;
  }
  if (features.shader_f16 && features.subgroups &&
      adapter.HasFeature(wgpu::FeatureName::ChromiumExperimentalSubgroupMatrix)) {
    wgpu::AdapterPropertiesSubgroupMatrixConfigs configs;
    wgpu::AdapterInfo with_configs;
    with_configs.nextInChain = &configs;
    adapter.GetInfo(&with_configs);
    features.subgroup_matrix_f16 = has_f16_matrix(configs);
  }

  wgpu::Limits limits;
  adapter.GetLimits(&limits);
  info.limits = to_limits(limits);
  return info;
}

/// Several cards of one model get " #2", " #3": a name means one adapter.
void number_equal_names(std::vector<Candidate>& candidates) {
  std::map<std::string, int> seen;
  for (Candidate& c : candidates) {
    int count = ++seen[c.info.name];
    if (count > 1) c.info.name += fmt::format(" #{}", count);
  }
}

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

std::string names(const std::vector<Candidate>& candidates) {
  std::string text;
  for (const Candidate& c : candidates) {
    text += fmt::format("{}\"{}\"{}", text.empty() ? "" : ", ", c.info.name,
                        c.info.is_software() ? " (software)" : "");
  }
  return text;
}

/// The drivers' words on one line, cut where they go on and on.
std::string one_line(std::string_view text) {
  std::string line;
  for (char c : text.substr(0, 500)) {
    const bool space = std::isspace(static_cast<unsigned char>(c));
    if (!space || (!line.empty() && line.back() != ' ')) line += space ? ' ' : c;
  }
  return line;
}

[[noreturn]] void throw_none(const Adapters& adapters, std::string_view selector) {
  const std::vector<Candidate>& candidates = adapters.candidates;
  const std::string none =
      adapters.complaints.empty()
          ? "no WebGPU adapter was found"
          : fmt::format("no WebGPU adapter was found ({})", one_line(adapters.complaints));
  std::string where = fmt::format("device '{}'", selector);
  constexpr std::string_view kInstallGpu =
      "install the GPU's Vulkan driver and the loader (Debian, Ubuntu: apt-get install libvulkan1 "
      "mesa-vulkan-drivers, or NVIDIA's own driver), or use --device cpu";
  if (selector == "software") {
    throw input_error(
        where, candidates.empty() ? none : "only " + names(candidates) + " was found",
        "a software Vulkan driver (Mesa's lavapipe, version 23 or newer) was expected",
        "install it (tools/install-test-driver.sh on Debian), or use --device cpu");
  }
  if (candidates.empty()) {
    throw input_error(where, none, "", kInstallGpu);
  }
  bool only_software = std::all_of(candidates.begin(), candidates.end(),
                                   [](const Candidate& c) { return c.info.is_software(); });
  if (only_software) {
    throw input_error(where, "only software drivers were found: " + names(candidates),
                      "a GPU was expected", kInstallGpu);
  }
  throw input_error(where, "no adapter of that name; found: " + names(candidates), "",
                    "give part of one of these names as gpu:NAME");
}

}  // namespace

Limits to_limits(const wgpu::Limits& limits) {
  Limits out;
  out.max_buffer_size = limits.maxBufferSize;
  out.max_binding_size = limits.maxStorageBufferBindingSize;
  out.max_storage_buffers = limits.maxStorageBuffersPerShaderStage;
  out.max_workgroups_per_dimension = limits.maxComputeWorkgroupsPerDimension;
  out.max_workgroup_memory = limits.maxComputeWorkgroupStorageSize;
  out.max_workgroup_invocations = limits.maxComputeInvocationsPerWorkgroup;
  out.storage_offset_alignment = limits.minStorageBufferOffsetAlignment;
  return out;
}

wgpu::Instance create_instance() {
#ifdef __linux__
  // Mesa's drivers want a folder of their own there, also where nothing is ever shown.
  std::error_code ignored;
  setenv("XDG_RUNTIME_DIR", std::filesystem::temp_directory_path(ignored).c_str(), /*replace=*/0);
#endif
  wgpu::DawnTogglesDescriptor chained = toggles();
  wgpu::InstanceFeatureName waiting = wgpu::InstanceFeatureName::TimedWaitAny;
  wgpu::InstanceDescriptor descriptor;
  descriptor.nextInChain = &chained;
  descriptor.requiredFeatureCount = 1;
  descriptor.requiredFeatures = &waiting;
  return wgpu::CreateInstance(&descriptor);
}

Adapters enumerate(const wgpu::Instance& instance) {
  Adapters result;
  if (!instance) return result;
  StderrFilter filter;
  wgpu::DawnTogglesDescriptor chained = toggles();
  wgpu::RequestAdapterOptions options;
  options.nextInChain = &chained;
  options.featureLevel = wgpu::FeatureLevel::Core;
  options.powerPreference = wgpu::PowerPreference::HighPerformance;
  dawn::native::Instance native(reinterpret_cast<dawn::native::InstanceBase*>(instance.Get()));
  for (const dawn::native::Adapter& found : native.EnumerateAdapters(&options)) {
    wgpu::Adapter adapter(found.Get());
    wgpu::AdapterInfo raw;
    adapter.GetInfo(&raw);
    if (backend_name(raw.backendType) == nullptr) continue;
    AdapterInfo info = describe(adapter, raw);
    result.candidates.push_back({std::move(adapter), std::move(info)});
  }
  number_equal_names(result.candidates);
  result.complaints = filter.finish();
  return result;
}

Candidate choose(Adapters adapters, std::string_view selector) {
  std::vector<Candidate>& candidates = adapters.candidates;
  const bool named = selector.starts_with("gpu:");
  if (selector != "auto" && selector != "gpu" && selector != "software" && !named) {
    throw input_error(fmt::format("device '{}'", selector), "not a WebGPU device",
                      "expected auto, gpu, gpu:NAME or software");
  }
  const std::string_view name = named ? selector.substr(4) : std::string_view();
  // Smaller is better; negative: not meant.
  auto rank = [&](const AdapterInfo& info) {
    if (selector == "software") {
      if (!info.is_software()) return -1;
      return contains_ignoring_case(info.name, "llvmpipe") ? 0 : 1;
    }
    if (info.is_software() || !contains_ignoring_case(info.name, name)) return -1;
    return static_cast<int>(info.type);
  };
  int best = -1;
  for (size_t i = 0; i < candidates.size(); ++i) {
    int r = rank(candidates[i].info);
    if (r >= 0 && (best < 0 || r < rank(candidates[static_cast<size_t>(best)].info))) {
      best = static_cast<int>(i);
    }
  }
  if (best < 0) throw_none(adapters, selector);
  StderrFilter::pass_on(adapters.complaints);
  return std::move(candidates[static_cast<size_t>(best)]);
}

std::vector<AdapterInfo> list_adapters() {
  std::vector<AdapterInfo> infos;
  Adapters found = enumerate(create_instance());
  for (Candidate& c : found.candidates) infos.push_back(std::move(c.info));
  return infos;
}

}  // namespace wgrad::gpu
