#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "gpu/device.h"
#include "terminal.h"
#include "train/device_choice.h"

namespace wgrad::cli {
namespace {

const char* type_name(gpu::AdapterInfo::Type type) {
  switch (type) {
    case gpu::AdapterInfo::Type::kDiscrete:
      return "discrete";
    case gpu::AdapterInfo::Type::kIntegrated:
      return "integrated";
    case gpu::AdapterInfo::Type::kCpu:
      return "software";
    case gpu::AdapterInfo::Type::kUnknown:
      break;
  }
  return "unknown";
}

/// The fastest matrix product that the features allow.
const char* product_path(const gpu::Features& f) {
  if (f.subgroup_matrix_f16) return "subgroup matrices, f16 operands";
  if (f.shader_f16) return "f16 storage, f32 arithmetic";
  return "f32";
}

nlohmann::ordered_json to_json(const gpu::AdapterInfo& a) {
  nlohmann::ordered_json json;
  json["name"] = a.name;
  json["type"] = type_name(a.type);
  json["vendor"] = a.vendor;
  json["architecture"] = a.architecture;
  json["driver"] = a.driver;
  json["backend"] = a.backend;
  json["memory_bytes"] = a.memory_bytes;
  json["features"] = {{"shader_f16", a.features.shader_f16},
                      {"subgroups", a.features.subgroups},
                      {"subgroup_matrix_f16", a.features.subgroup_matrix_f16},
                      {"timestamps", a.features.timestamps},
                      {"subgroup_min_size", a.features.subgroup_min_size},
                      {"subgroup_max_size", a.features.subgroup_max_size}};
  json["limits"] = {{"max_buffer_size", a.limits.max_buffer_size},
                    {"max_binding_size", a.limits.max_binding_size},
                    {"max_storage_buffers", a.limits.max_storage_buffers},
                    {"max_workgroup_memory", a.limits.max_workgroup_memory},
                    {"max_workgroup_invocations", a.limits.max_workgroup_invocations}};
  json["products"] = product_path(a.features);
  return json;
}

void print(const gpu::AdapterInfo& a, bool chosen) {
  fmt::print("{} {}  ({}, {}, {})\n", chosen ? "*" : " ", a.name, type_name(a.type), a.backend,
             a.driver);
  fmt::print("    features  f16 {}, subgroups {}, subgroup matrices {}, timestamps {}\n",
             a.features.shader_f16 ? "yes" : "no",
             a.features.subgroups
                 ? fmt::format("{}-{}", a.features.subgroup_min_size, a.features.subgroup_max_size)
                 : std::string("no"),
             a.features.subgroup_matrix_f16 ? "yes" : "no", a.features.timestamps ? "yes" : "no");
  if (a.memory_bytes > 0) {
    fmt::print("    memory    {}\n", format_bytes(static_cast<int64_t>(a.memory_bytes)));
  }
  fmt::print("    limits    buffer {}, binding {}, workgroup memory {}, invocations {}\n",
             format_bytes(static_cast<int64_t>(a.limits.max_buffer_size)),
             format_bytes(static_cast<int64_t>(a.limits.max_binding_size)),
             format_bytes(a.limits.max_workgroup_memory), a.limits.max_workgroup_invocations);
  fmt::print("    products  {}\n", product_path(a.features));
}

int run(bool json) {
  const train::DeviceChoice choice = train::choose_device("auto");
  const std::vector<gpu::AdapterInfo> adapters = gpu::list_adapters();
  if (json) {
    nlohmann::ordered_json all;
    all["auto"] = choice.kind == DeviceKind::kCpu ? "cpu" : choice.adapter.name;
    all["adapters"] = nlohmann::ordered_json::array();
    for (const gpu::AdapterInfo& a : adapters) all["adapters"].push_back(to_json(a));
    fmt::print("{}\n", all.dump());
    return kDone;
  }
  for (const gpu::AdapterInfo& a : adapters) {
    print(a, choice.kind == DeviceKind::kGpu && a.name == choice.adapter.name);
  }
  fmt::print("{} CPU  (native, f32)\n", choice.kind == DeviceKind::kCpu ? "*" : " ");
  fmt::print("* is what --device auto takes.\n");
  return kDone;
}

}  // namespace

Run add_devices(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "one JSON object");
  return [json] { return run(*json); };
}

}  // namespace wgrad::cli
