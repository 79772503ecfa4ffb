#include "gpu/pipeline_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpu/core.h"
#include "gpu/kernel_text.h"
#include "wgrad/error.h"

namespace wgrad::gpu {
namespace {

std::string_view line_of(std::string_view text, uint64_t number) {
  size_t begin = 0;
  for (uint64_t i = 1; i < number && begin < text.size(); ++i) {
    begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
  }
  std::string_view rest = text.substr(begin);
  return rest.substr(0, rest.find('\n'));
}

struct Message {
  std::string text;
  uint64_t line = 0, column = 0;
};

Message first_error(Core& core, const wgpu::ShaderModule& module) {
  Message message;
  auto take = [&message](wgpu::CompilationInfoRequestStatus, const wgpu::CompilationInfo* info) {
    for (size_t i = 0; info != nullptr && i < info->messageCount; ++i) {
      const wgpu::CompilationMessage& m = info->messages[i];
      if (m.type != wgpu::CompilationMessageType::Error) continue;
      message = {std::string(view(m.message)), m.lineNum, m.linePos};
      return;
    }
  };
  core.wait(module.GetCompilationInfo(wgpu::CallbackMode::WaitAnyOnly, take));
  return message;
}

std::string pop_error(Core& core) {
  std::string text;
  core.wait(core.device.PopErrorScope(
      wgpu::CallbackMode::WaitAnyOnly,
      [&text](wgpu::PopErrorScopeStatus, wgpu::ErrorType type, wgpu::StringView message) {
        if (type != wgpu::ErrorType::NoError) text = view(message);
      }));
  return text;
}

}  // namespace

/// One pipeline on its way: the parts that must stay in place while it compiles.
struct PipelineCache::Build {
  KernelSpec spec;
  std::string name, text;
  wgpu::ShaderModule module;
  WgslInterface interface;
  const BindingLayout* layout = nullptr;
  std::vector<wgpu::ConstantEntry> constants;
  wgpu::ComputePipelineDescriptor descriptor;
  wgpu::ComputePipeline pipeline;
  wgpu::Future future;
  std::string error;

  std::string where() const { return fmt::format("kernel '{}'", name); }

  /// Says where in the kernel's own files a line of the whole text stands, and quotes it.
  std::string place(uint64_t line, uint64_t column) const {
    uint64_t prelude_lines =
        static_cast<uint64_t>(std::count(spec.prelude.begin(), spec.prelude.end(), '\n'));
    std::string_view quoted = line_of(text, line);
    if (line <= prelude_lines) return fmt::format("prelude:{}:{}: `{}`", line, column, quoted);
    return fmt::format("{}.wgsl:{}:{}: `{}`", spec.source, line - prelude_lines, column, quoted);
  }
};

const PipelineCache::Entry* PipelineCache::find(uint64_t hash, const KernelSpec& kernel) const {
  auto bucket = entries_.find(hash);
  if (bucket == entries_.end()) return nullptr;
  for (const auto& entry : bucket->second) {
    if (entry->spec == kernel) return entry.get();
  }
  return nullptr;
}

/// Parses the text and describes the pipeline; its compilation comes after.
std::unique_ptr<PipelineCache::Build> PipelineCache::prepare(Core& core, const KernelSpec& kernel) {
  auto build = std::make_unique<Build>();
  Build& b = *build;
  b.spec = kernel;
  b.name = fmt::format("{}.{}", kernel.source, kernel.entry_point);
  b.text = kernel_text(kernel);

  wgpu::ShaderSourceWGSL wgsl;
  wgsl.code = std::string_view(b.text);
  wgpu::ShaderModuleDescriptor module;
  module.nextInChain = &wgsl;
  module.label = std::string_view(b.name);
  core.device.PushErrorScope(wgpu::ErrorFilter::Validation);
  b.module = core.device.CreateShaderModule(&module);
  if (std::string error = pop_error(core); !error.empty()) {
    Message m = first_error(core, b.module);
    throw runtime_failure(
        b.where(),
        m.text.empty() ? error : fmt::format("{}: {}", b.place(m.line, m.column), m.text));
  }

  b.interface = read_wgsl_interface(b.text, kernel.entry_point);
  if (!b.interface.found) throw runtime_failure(b.where(), "the text has no such entry point");
  b.layout = &layout_for(core, b.interface);
  for (const auto& [name, value] : b.spec.overrides) {
    wgpu::ConstantEntry constant;
    constant.key = std::string_view(name);
    constant.value = value;
    b.constants.push_back(constant);
  }
  wgpu::PipelineLayoutDescriptor layout;
  layout.bindGroupLayoutCount = 1;
  layout.bindGroupLayouts = &b.layout->handle;
  b.descriptor.label = std::string_view(b.name);
  b.descriptor.layout = core.device.CreatePipelineLayout(&layout);
  b.descriptor.compute.module = b.module;
  b.descriptor.compute.entryPoint = kernel.entry_point;
  b.descriptor.compute.constantCount = b.constants.size();
  b.descriptor.compute.constants = b.constants.data();
  return build;
}

const Pipeline& PipelineCache::insert(uint64_t hash, const Build& build) {
  auto entry = std::make_unique<Entry>();
  entry->source = build.spec.source;
  entry->entry_point = build.spec.entry_point;
  entry->spec = build.spec;
  entry->spec.source = entry->source;
  entry->spec.entry_point = entry->entry_point;
  entry->pipeline = {build.name, build.pipeline, build.interface, build.layout};
  ++count_;
  return entries_[hash].emplace_back(std::move(entry))->pipeline;
}

const Pipeline& PipelineCache::get(Core& core, const KernelSpec& kernel) {
  if (!kernel.permanent) return get_by_text(core, kernel);
  const Pipeline*& found = permanent_[&kernel];
  if (found == nullptr) found = &get_by_text(core, kernel);
  return *found;
}

const Pipeline& PipelineCache::get_by_text(Core& core, const KernelSpec& kernel) {
  const uint64_t hash = hash_of(kernel);
  if (const Entry* entry = find(hash, kernel)) return entry->pipeline;
  std::unique_ptr<Build> build = prepare(core, kernel);
  core.device.PushErrorScope(wgpu::ErrorFilter::Internal);
  core.device.PushErrorScope(wgpu::ErrorFilter::Validation);
  build->pipeline = core.device.CreateComputePipeline(&build->descriptor);
  const std::string invalid = pop_error(core), internal = pop_error(core);
  if (!invalid.empty() || !internal.empty()) {
    throw runtime_failure(build->where(), invalid.empty() ? internal : invalid);
  }
  return insert(hash, *build);
}

void PipelineCache::compile(Core& core, std::span<const KernelSpec> kernels) {
  std::vector<std::unique_ptr<Build>> builds;
  for (const KernelSpec& kernel : kernels) {
    const bool started =
        std::any_of(builds.begin(), builds.end(), [&](const auto& b) { return b->spec == kernel; });
    if (!started && find(hash_of(kernel), kernel) == nullptr) {
      builds.push_back(prepare(core, kernel));
    }
  }
  for (const auto& build : builds) {
    build->future = core.device.CreateComputePipelineAsync(
        &build->descriptor, wgpu::CallbackMode::WaitAnyOnly,
        [b = build.get()](wgpu::CreatePipelineAsyncStatus status, wgpu::ComputePipeline pipeline,
                          wgpu::StringView message) {
          b->pipeline = std::move(pipeline);
          if (status != wgpu::CreatePipelineAsyncStatus::Success) {
            b->error = message.length == 0 ? "compiling failed" : view(message);
          }
        });
  }
  // All are waited for before the first failure is thrown: they refer to `builds`.
  for (const auto& build : builds) core.instance.WaitAny(build->future, UINT64_MAX);
  core.check();
  for (const auto& build : builds) {
    if (!build->error.empty()) throw runtime_failure(build->where(), build->error);
    insert(hash_of(build->spec), *build);
  }
}

const BindingLayout& PipelineCache::layout_for(Core& core, const WgslInterface& interface) {
  const uint64_t id = interface.storage_count | uint64_t{interface.has_uniform} << 8 |
                      uint64_t{interface.writable} << 32;
  std::unique_ptr<BindingLayout>& layout = layouts_[id];
  if (layout) return *layout;

  std::vector<wgpu::BindGroupLayoutEntry> entries(interface.storage_count +
                                                  (interface.has_uniform ? 1 : 0));
  for (uint32_t i = 0; i < entries.size(); ++i) {
    entries[i].binding = i;
    entries[i].visibility = wgpu::ShaderStage::Compute;
    if (i == interface.storage_count) {
      entries[i].buffer.type = wgpu::BufferBindingType::Uniform;
      entries[i].buffer.hasDynamicOffset = true;
    } else {
      entries[i].buffer.type = (interface.writable >> i & 1) != 0
                                   ? wgpu::BufferBindingType::Storage
                                   : wgpu::BufferBindingType::ReadOnlyStorage;
    }
  }
  wgpu::BindGroupLayoutDescriptor descriptor;
  descriptor.entryCount = entries.size();
  descriptor.entries = entries.data();
  layout = std::make_unique<BindingLayout>();
  *layout = {id, interface.storage_count, interface.writable, interface.has_uniform,
             core.device.CreateBindGroupLayout(&descriptor)};
  return *layout;
}

}  // namespace wgrad::gpu
