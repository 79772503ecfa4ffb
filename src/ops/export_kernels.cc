#include "ops/export_kernels.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "wgrad/error.h"
#include "wgrad/kernels.h"

namespace wgrad::ops {
namespace {

std::string bindings_json(const Kernel& kernel) {
  std::string text;
  size_t number = 0;
  for (const KernelBinding& b : kernel.bindings) {
    text += fmt::format("        {{\"binding\": {}, \"name\": \"{}\", \"type\": \"{}\"}},\n",
                        number++, b.name, b.written ? "storage" : "read-only-storage");
  }
  return text +
         fmt::format("        {{\"binding\": {}, \"name\": \"params\", \"type\": \"uniform\"}}\n",
                     number);
}

std::string fields_json(const Kernel& kernel) {
  std::string text;
  for (size_t i = 0; i < kernel.fields.size(); ++i) {
    const KernelField& f = kernel.fields[i];
    text +=
        fmt::format("          {{\"name\": \"{}\", \"type\": \"{}\", \"offset\": {}}}{}\n", f.name,
                    f.is_f32 ? "f32" : "u32", 4 * i, i + 1 < kernel.fields.size() ? "," : "");
  }
  return text;
}

std::string entry_points_json(const Kernel& kernel) {
  std::string text;
  for (size_t i = 0; i < kernel.entry_points.size(); ++i) {
    const KernelEntryPoint& e = kernel.entry_points[i];
    text +=
        fmt::format("        {{\"name\": \"{}\", \"workgroups\": [\"{}\", \"{}\", \"{}\"]}}{}\n",
                    e.name, e.x, e.y, e.z, i + 1 < kernel.entry_points.size() ? "," : "");
  }
  return text;
}

std::string kernel_json(const Kernel& kernel) {
  return fmt::format(
      "    {{\n"
      "      \"name\": \"{0}\",\n"
      "      \"file\": \"{0}.wgsl\",\n"
      "      \"bindings\": [\n{1}      ],\n"
      "      \"uniform\": {{\n"
      "        \"size\": {2},\n"
      "        \"fields\": [\n{3}        ]\n"
      "      }},\n"
      "      \"entry_points\": [\n{4}      ]\n"
      "    }}",
      kernel.name, bindings_json(kernel), 4 * kernel.fields.size(), fields_json(kernel),
      entry_points_json(kernel));
}

/// What is there already must be what would be written.
void refuse_another(const std::filesystem::path& path, std::string_view text) {
  std::error_code error;
  if (std::filesystem::symlink_status(path, error).type() ==
      std::filesystem::file_type::not_found) {
    return;
  }
  std::ifstream file(path, std::ios::binary);
  const std::string there((std::istreambuf_iterator<char>(file)), {});
  if (there == text) return;
  throw input_error(path.string(), "it exists already, with another content",
                    "a folder without such files", "choose another folder or remove what is there");
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) {
    throw runtime_failure(path.string(), "cannot be written", {},
                          "check the folder's permissions and the space left");
  }
}

}  // namespace

std::string export_manifest() {
  std::string text = "{\n  \"kernels\": [\n";
  const std::vector<Kernel>& all = kernels();
  for (size_t i = 0; i < all.size(); ++i) {
    text += kernel_json(all[i]) + (i + 1 < all.size() ? ",\n" : "\n");
  }
  return text + "  ]\n}\n";
}

void export_kernels(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw runtime_failure(folder.string(), error.message(), "expected a folder");
  std::vector<std::pair<std::filesystem::path, std::string>> files;
  for (const Kernel& kernel : kernels()) {
    files.emplace_back(folder / fmt::format("{}.wgsl", kernel.name), kernel.text());
  }
  files.emplace_back(folder / "manifest.json", export_manifest());
  for (const auto& [path, text] : files) refuse_another(path, text);
  for (const auto& [path, text] : files) write_file(path, text);
}

}  // namespace wgrad::ops
