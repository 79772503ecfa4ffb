#include "train/device_choice.h"

#include <fmt/format.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <fstream>

namespace wgrad::train {
namespace {

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  auto equal = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), equal) != text.end();
}

/// Whether gpu:PART means this adapter. A number must stand in the name as a word of its own, so
/// that a device's place in a list never matches a digit of a name by accident.
bool is_named(std::string_view name, std::string_view part) {
  const bool number =
      !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
  if (!number) return contains_ignoring_case(name, part);
  const auto inside = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.';
  };
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || !inside(name[at - 1])) && (end == name.size() || !inside(name[end]))) {
      return true;
    }
  }
  return false;
}

std::string adapter_names(const std::vector<gpu::AdapterInfo>& adapters) {
  if (adapters.empty()) return "this machine has no WebGPU adapter";
  std::vector<std::string> names;
  for (const auto& a : adapters) names.push_back(fmt::format("\"{}\"", a.name));
  return fmt::format("this machine has {}", fmt::join(names, ", "));
}

const gpu::AdapterInfo* best_hardware(const std::vector<gpu::AdapterInfo>& adapters) {
  using Type = gpu::AdapterInfo::Type;
  for (Type type : {Type::kDiscrete, Type::kIntegrated, Type::kUnknown}) {
    for (const auto& a : adapters) {
      if (a.type == type) return &a;
    }
  }
  return nullptr;
}

int64_t meminfo_bytes(std::string_view key) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  int64_t kib = 0;
  while (file >> word) {
    if (word == key && file >> kib) return kib * 1024;
  }
  return 0;
}

/// What the control group still allows, where there is one (containers).
int64_t cgroup_headroom() {
  std::ifstream limit_file("/sys/fs/cgroup/memory.max"), used_file("/sys/fs/cgroup/memory.current");
  int64_t limit = 0, used = 0;
  if (!(limit_file >> limit) || !(used_file >> used)) return 0;
  return std::max<int64_t>(limit - used, 1);
}

}  // namespace

std::string DeviceChoice::name() const {
  return kind == DeviceKind::kCpu ? "CPU" : fmt::format("{} ({})", adapter.name, adapter.backend);
}

DeviceChoice choose_device(const std::string& selector) {
  if (selector == "cpu") return {DeviceKind::kCpu, {}, selector};
  const std::vector<gpu::AdapterInfo> adapters = gpu::list_adapters();
  const gpu::AdapterInfo* found = nullptr;
  if (selector == "auto" || selector == "gpu") {
    found = best_hardware(adapters);
    if (!found && selector == "auto") return {DeviceKind::kCpu, {}, "cpu"};
  } else if (selector == "software") {
    auto it = std::find_if(adapters.begin(), adapters.end(),
                           [](const auto& a) { return a.is_software(); });
    if (it != adapters.end()) found = &*it;
  } else if (selector.starts_with("gpu:")) {
    const std::string part = selector.substr(4);
    auto it = std::find_if(adapters.begin(), adapters.end(),
                           [&](const auto& a) { return is_named(a.name, part); });
    if (it != adapters.end()) found = &*it;
  } else {
    throw input_error("--device", fmt::format("\"{}\"", selector),
                      "expected auto, cpu, gpu, gpu:NAME or software",
                      "see `wgrad devices` for names");
  }
  if (!found && selector.starts_with("gpu:")) {
    throw input_error(fmt::format("--device {}", selector), "no such adapter",
                      adapter_names(adapters),
                      "devices are chosen by a part of their name, not by a number: see `wgrad "
                      "devices`");
  }
  if (!found) {
    throw input_error(fmt::format("--device {}", selector), "no such adapter",
                      adapter_names(adapters),
                      "see `wgrad devices`, install a Vulkan driver, or use --device cpu");
  }
  if (found->is_software() && selector != "software") {
    throw input_error(fmt::format("--device {}", selector),
                      fmt::format("\"{}\" computes on the CPU", found->name),
                      "expected the name of a GPU", "use --device software, or --device cpu");
  }
  return {DeviceKind::kGpu, *found, selector == "auto" ? "gpu" : selector};
}

std::vector<DeviceChoice> usual_gpus(int64_t memory_bytes) {
  gpu::AdapterInfo with;
  with.name = fmt::format("GPU of {:.1f} GB", static_cast<double>(memory_bytes) / 1e9);
  with.type = gpu::AdapterInfo::Type::kDiscrete;
  with.memory_bytes = static_cast<uint64_t>(memory_bytes);
  with.features.shader_f16 = with.features.subgroups = true;
  with.features.subgroup_min_size = with.features.subgroup_max_size = 32;
  // What Vulkan drivers of discrete GPUs grant.
  with.limits.max_buffer_size = uint64_t{4} << 30;
  with.limits.max_binding_size = (uint64_t{2} << 30) - 4;
  with.limits.max_storage_buffers = 16;
  with.limits.max_workgroups_per_dimension = 65535;
  with.limits.max_workgroup_memory = 32 << 10;
  with.limits.max_workgroup_invocations = 1024;
  gpu::AdapterInfo without = with;
  with.features.subgroup_matrix_f16 = true;
  with.backend = "with f16 matrix units";
  without.backend = "without f16 matrix units";
  return {{DeviceKind::kGpu, with, "gpu"}, {DeviceKind::kGpu, without, "gpu"}};
}

ComputeType choose_compute(Precision precision, const DeviceChoice& device) {
  const gpu::Features& features = device.adapter.features;
  switch (precision) {
    case Precision::kF32:
      return ComputeType::kF32;
    case Precision::kF16:
      if (device.kind == DeviceKind::kCpu) {
        throw input_error("--dtype f16", "the device is the CPU", "its products are f32",
                          "leave --dtype out, or use --device gpu");
      }
      if (!features.shader_f16) {
        throw input_error("--dtype f16", fmt::format("{} has no f16", device.adapter.name), {},
                          "use --dtype f32");
      }
      return ComputeType::kF16;
    case Precision::kAuto:
      break;
  }
  const bool fast = device.kind == DeviceKind::kGpu && features.subgroup_matrix_f16;
  return fast ? ComputeType::kF16 : ComputeType::kF32;
}

std::unique_ptr<Context> open_context(const DeviceChoice& device, ComputeType compute) {
  Context::Options options;
  options.compute = compute;
  if (device.kind == DeviceKind::kCpu) return Context::cpu(options);
  gpu::DeviceOptions gpu_options;
  gpu_options.selector = device.selector;
  return Context::gpu(gpu_options, options);
}

std::unique_ptr<Context> plan_context(const DeviceChoice& device, ComputeType compute) {
  Context::Options options;
  options.compute = compute;
  return Context::plan(device.kind, device.adapter.limits, device.adapter.features, options);
}

int64_t available_memory(const DeviceChoice& device) {
  const bool shares_host_memory = device.kind == DeviceKind::kCpu || device.adapter.is_software();
  if (!shares_host_memory) return static_cast<int64_t>(device.adapter.memory_bytes);
  const int64_t free_bytes = meminfo_bytes("MemAvailable:");
  const int64_t group = cgroup_headroom();
  return group > 0 ? std::min(free_bytes, group) : free_bytes;
}

}  // namespace wgrad::train
