#include "ops/export_kernels.h"

#include <fmt/format.h>

#include <fstream>
#include <system_error>

#include "gpu/kernel_text.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

/// One workgroup an item, or one a tile of the result, folded into two dimensions.
constexpr std::string_view kElementsX = "min(ceil_div(n,256),65535)";
constexpr std::string_view kElementsY = "ceil_div(ceil_div(n,256),65535)";

std::string bindings_json(const ExportedKernel& kernel) {
  std::string text;
  size_t number = 0;
  for (const ExportedBinding& b : kernel.bindings) {
    text += fmt::format("        {{\"binding\": {}, \"name\": \"{}\", \"type\": \"{}\"}},\n",
                        number++, b.name, b.written ? "storage" : "read-only-storage");
  }
  return text +
         fmt::format("        {{\"binding\": {}, \"name\": \"params\", \"type\": \"uniform\"}}\n",
                     number);
}

std::string fields_json(const ExportedKernel& kernel) {
  std::string text;
  for (size_t i = 0; i < kernel.fields.size(); ++i) {
    const ExportedField& f = kernel.fields[i];
    text +=
        fmt::format("          {{\"name\": \"{}\", \"type\": \"{}\", \"offset\": {}}}{}\n", f.name,
                    f.is_f32 ? "f32" : "u32", 4 * i, i + 1 < kernel.fields.size() ? "," : "");
  }
  return text;
}

std::string entry_points_json(const ExportedKernel& kernel) {
  std::string text;
  for (size_t i = 0; i < kernel.entry_points.size(); ++i) {
    const ExportedEntryPoint& e = kernel.entry_points[i];
    text +=
        fmt::format("        {{\"name\": \"{}\", \"workgroups\": [\"{}\", \"{}\", \"{}\"]}}{}\n",
                    e.name, e.x, e.y, e.z, i + 1 < kernel.entry_points.size() ? "," : "");
  }
  return text;
}

std::string kernel_json(const ExportedKernel& kernel) {
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

std::string_view ExportedKernel::text() const { return gpu::kernel_source(name); }

const std::vector<ExportedKernel>& exported_kernels() {
  static const std::vector<ExportedKernel> kernels = {
      {"silu_backward",
       {{"x"}, {"dy"}, {"dx", true}},
       {{"n"}},
       {{"silu_backward", kElementsX, kElementsY}}},
      {"gemm_backward_a",
       {{"dC"}, {"B"}, {"dA", true}},
       {{"M"}, {"K"}, {"N"}},
       {{"gemm_backward_a", "min(ceil_div(M,64)*ceil_div(K,64),65535)",
         "ceil_div(ceil_div(M,64)*ceil_div(K,64),65535)"}}},
      {"gemm_backward_b",
       {{"A"}, {"dC"}, {"dB", true}},
       {{"M"}, {"K"}, {"N"}},
       {{"gemm_backward_b", "min(ceil_div(K,64)*ceil_div(N,64),65535)",
         "ceil_div(ceil_div(K,64)*ceil_div(N,64),65535)"}}},
      {"rms_norm_backward",
       {{"x"}, {"g"}, {"dy"}, {"dx", true}, {"dg", true}},
       {{"num_rows"}, {"hidden_dim"}, {"eps", true}, {"pad"}},
       {{"inverse_rms", "min(num_rows,65535)", "ceil_div(num_rows,65535)"},
        {"weight_gradient", "ceil_div(hidden_dim,32)"},
        {"input_gradient", "min(num_rows,65535)", "ceil_div(num_rows,65535)"}}},
      {"rope_backward",
       {{"dy"}, {"dx", true}},
       {{"num_heads"}, {"head_dim"}, {"seq_len"}, {"theta_log2", true}},
       {{"rope_backward", "min(ceil_div(num_heads*seq_len*(head_dim/2),256),65535)",
         "ceil_div(ceil_div(num_heads*seq_len*(head_dim/2),256),65535)"}}},
      {"softmax_backward",
       {{"y"}, {"dy"}, {"dx", true}},
       {{"num_rows"}, {"row_len"}},
       {{"softmax_backward", "min(num_rows,65535)", "ceil_div(num_rows,65535)"}}},
      {"cross_entropy_forward",
       {{"logits"}, {"labels"}, {"losses", true}, {"logsumexp", true}},
       {{"seq_len"}, {"vocab_size"}, {"loss_start"}, {"loss_end"}},
       {{"cross_entropy_forward", "min(seq_len,65535)", "ceil_div(seq_len,65535)"}}},
      {"cross_entropy_backward",
       {{"logits", true}, {"labels"}, {"logsumexp"}},
       {{"seq_len"}, {"vocab_size"}, {"loss_start"}, {"loss_end"}, {"scale", true}},
       {{"cross_entropy_backward", "min(seq_len,65535)", "ceil_div(seq_len,65535)"}}},
      {"adamw_step",
       {{"p", true}, {"g"}, {"m", true}, {"v", true}},
       {{"n"},
        {"lr", true},
        {"beta1", true},
        {"beta2", true},
        {"eps", true},
        {"weight_decay", true},
        {"bias_correction1", true},
        {"bias_correction2", true}},
       {{"adamw_step", kElementsX, kElementsY}}},
      {"nf4_dequant",
       {{"packed"}, {"scales"}, {"out", true}},
       {{"n"}, {"block_size"}},
       {{"nf4_dequant", kElementsX, kElementsY}}},
  };
  return kernels;
}

std::string export_manifest() {
  std::string text = "{\n  \"kernels\": [\n";
  const std::vector<ExportedKernel>& kernels = exported_kernels();
  for (size_t i = 0; i < kernels.size(); ++i) {
    text += kernel_json(kernels[i]) + (i + 1 < kernels.size() ? ",\n" : "\n");
  }
  return text + "  ]\n}\n";
}

void export_kernels(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw runtime_failure(folder.string(), error.message(), "expected a folder");
  for (const ExportedKernel& kernel : exported_kernels()) {
    write_file(folder / fmt::format("{}.wgsl", kernel.name), kernel.text());
  }
  write_file(folder / "manifest.json", export_manifest());
}

}  // namespace wgrad::ops
