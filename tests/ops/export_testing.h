#pragma once

#include <cctype>
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

namespace wgrad::ops {

/// Evaluates a manifest's workgroup count: integers, fields, + - * /, ceil_div, min, max, ().
class WorkgroupExpression {
 public:
  WorkgroupExpression(std::string_view text, const std::map<std::string, double>& fields)
      : text_(text), fields_(fields) {}

  uint64_t value() {
    const int64_t result = sum();
    if (at_ != text_.size()) throw std::runtime_error("rest of expression: " + rest());
    return static_cast<uint64_t>(result);
  }

 private:
  std::string rest() const { return std::string(text_.substr(at_)); }
  bool take(char c) {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  int64_t sum() {
    int64_t v = product();
    for (;;) {
      if (take('+')) {
        v += product();
      } else if (take('-')) {
        v -= product();
      } else {
        return v;
      }
    }
  }
  int64_t product() {
    int64_t v = factor();
    for (;;) {
      if (take('*')) {
        v *= factor();
      } else if (take('/')) {
        v /= factor();
      } else {
        return v;
      }
    }
  }
  int64_t factor() {
    if (take('(')) {
      const int64_t v = sum();
      if (!take(')')) throw std::runtime_error("expected ) at " + rest());
      return v;
    }
    std::string word;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) {
      word += text_[at_++];
    }
    if (word.empty()) throw std::runtime_error("expected a number or name at " + rest());
    if (std::isdigit(static_cast<unsigned char>(word[0]))) return std::stoll(word);
    if (!take('(')) return static_cast<int64_t>(fields_.at(word));
    const int64_t a = sum();
    if (!take(',')) throw std::runtime_error("expected , at " + rest());
    const int64_t b = sum();
    if (!take(')')) throw std::runtime_error("expected ) at " + rest());
    if (word == "ceil_div") return (a + b - 1) / b;
    if (word == "min") return std::min(a, b);
    if (word == "max") return std::max(a, b);
    throw std::runtime_error("unknown function " + word);
  }

  std::string_view text_;
  const std::map<std::string, double>& fields_;
  size_t at_ = 0;
};

/// Runs exported kernels by what the manifest and the .wgsl files say alone.
class ExportedProgram {
 public:
  using Buffers = std::map<std::string, std::vector<uint32_t>>;

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
  void run(const std::string& name, Buffers& buffers, const std::map<std::string, double>& fields) {
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
                                              const std::map<std::string, double>& fields) {
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
