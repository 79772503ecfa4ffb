#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/device.h"
#include "ops/verify_exported.h"
#include "ops/workgroup_expression.h"

namespace wgrad::ops {

/// Runs exported kernels by what the manifest and the .wgsl files say alone.
class ExportedProgram {
 public:
  ExportedProgram(gpu::Device& device, const std::filesystem::path& folder)
      : device_(device), folder_(folder) {
    manifest_ = nlohmann::json::parse(read(folder / "manifest.json"));
  }

  const nlohmann::json& kernel(const std::string& name) const {
    for (const auto& k : manifest_.at("kernels")) {
      if (k.at("name") == name) return k;
    }
    throw std::runtime_error("no kernel " + name);
  }
  const nlohmann::json& manifest() const { return manifest_; }

  /// Replaces the contents of the buffers that the kernel writes.
  void run(const std::string& name, ExportedBuffers& buffers, const ExportedFields& fields) {
    const nlohmann::json& k = kernel(name);
    std::vector<gpu::Buffer> memory;
    memory.reserve(16);
    std::vector<gpu::Binding> bindings;
    uint32_t writable = 0;
    for (const auto& b : k.at("bindings")) {
      if (b.at("type") == "uniform") continue;
      const std::vector<uint32_t>& words = buffers.at(b.at("name"));
      memory.push_back(device_.allocate(words.size() * 4, "test"));
      if (b.at("binding") != bindings.size()) throw std::runtime_error("bindings out of order");
      if (b.at("type") == "storage") writable |= 1u << bindings.size();
      bindings.push_back({&memory.back(), 0, words.size() * 4});
      device_.upload(bindings.back(), std::as_bytes(std::span(words)));
    }
    const std::vector<std::byte> uniform = uniform_bytes(k.at("uniform"), fields);
    const std::string text = read(folder_ / k.at("file").get<std::string>());
    for (const auto& entry : k.at("entry_points")) {
      gpu::KernelSpec spec;
      const std::string entry_name = entry.at("name");
      spec.source = name;
      spec.entry_point = entry_name;
      spec.generated_text = text;
      uint32_t counts[3];
      for (size_t i = 0; i < 3; ++i) {
        const std::string expression = entry.at("workgroups").at(i);
        const uint64_t count = WorkgroupExpression(expression, fields).value();
        if (count > 65535) throw std::runtime_error("too many workgroups: " + expression);
        counts[i] = static_cast<uint32_t>(count);
      }
      device_.dispatch(spec, bindings, writable, uniform, {counts[0], counts[1], counts[2]});
    }
    size_t i = 0;
    for (const auto& b : k.at("bindings")) {
      if (b.at("type") == "storage") {
        device_.read(bindings[i], std::as_writable_bytes(std::span(buffers.at(b.at("name")))));
      }
      ++i;
    }
  }

 private:
  static std::string read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path.string());
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  static std::vector<std::byte> uniform_bytes(const nlohmann::json& uniform,
                                              const ExportedFields& fields) {
    std::vector<std::byte> bytes(uniform.at("size").get<size_t>());
    for (const auto& f : uniform.at("fields")) {
      const double value = fields.at(f.at("name"));
      const size_t offset = f.at("offset");
      if (f.at("type") == "f32") {
        const float v = static_cast<float>(value);
        std::memcpy(&bytes.at(offset), &v, 4);
      } else {
        const uint32_t v = static_cast<uint32_t>(value);
        std::memcpy(&bytes.at(offset), &v, 4);
      }
    }
    return bytes;
  }

  gpu::Device& device_;
  std::filesystem::path folder_;
  nlohmann::json manifest_;
};

}  // namespace wgrad::ops
