#include "ops/attention_source.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "gpu/kernel_text.h"

namespace wgrad::ops {
namespace {

/// What one kernel takes from the shared parts.
struct Parts {
  std::string_view file;
  std::span<const std::string_view> loads, stores;
  bool first_key, tile, scores;
};

constexpr std::string_view kQkv[] = {"q", "k", "v"};
constexpr std::string_view kOut[] = {"out"};
constexpr std::string_view kOuts[] = {"out", "grad_out"};
constexpr std::string_view kGradInputs[] = {"q", "k", "v", "grad_out"};
constexpr std::string_view kGradQ[] = {"grad_q"};
constexpr std::string_view kGradKv[] = {"grad_k", "grad_v"};

Parts parts(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::kForward:
      return {"attention_forward", kQkv, kOut, true, true, true};
    case AttentionKernel::kDecode:
      return {"attention_decode", kQkv, {}, true, false, true};
    case AttentionKernel::kCombine:
      return {"attention_combine", {}, kOut, false, false, false};
    case AttentionKernel::kStatistics:
      return {"attention_statistics", kOuts, {}, false, false, false};
    case AttentionKernel::kGradQ:
      return {"attention_grad_q", kGradInputs, kGradQ, true, true, true};
    case AttentionKernel::kGradKv:
      break;
  }
  return {"attention_grad_kv", kGradInputs, kGradKv, false, true, true};
}

/// As attention_load_function().
std::string store_function(std::string_view name, int64_t head_dim) {
  if (head_dim % 4 == 0) {
    return fmt::format(
        "fn store_{0}(at: u32, unit: u32, x: vec4<f32>) {{ {0}[at * UNITS + unit] = x; }}\n", name);
  }
  return fmt::format(R"(fn store_{0}(at: u32, unit: u32, x: vec4<f32>) {{
  let i = at * HEAD_DIM + unit * 4u;
  let left = HEAD_DIM - unit * 4u;
  {0}[i] = x.x;
  if (left > 1u) {{ {0}[i + 1u] = x.y; }}
  if (left > 2u) {{ {0}[i + 2u] = x.z; }}
  if (left > 3u) {{ {0}[i + 3u] = x.w; }}
}}
)",
                     name);
}

/// What text that caps scores needs.
std::string cap_text(float soft_cap) {
  std::string text = fmt::format("const SOFT_CAP: f32 = {:.9g};\n", soft_cap);
  text += gpu::kernel_source("lib_vector4");
  text += gpu::kernel_source("lib_tanh");
  return text;
}

/// What becomes of products of q and k.
std::string scores_text(float soft_cap) {
  if (soft_cap <= 0.0f) return std::string(gpu::kernel_source("lib_attention_scores"));
  return cap_text(soft_cap) + std::string(gpu::kernel_source("lib_attention_capped_scores"));
}

struct MatrixParts {
  std::string_view name;
  std::span<const std::string_view> stores;
};

MatrixParts matrix_parts(AttentionMatrixKernel kernel) {
  switch (kernel) {
    case AttentionMatrixKernel::kForward:
      return {"attention_forward_matrix", kOut};
    case AttentionMatrixKernel::kGradQ:
      return {"attention_grad_q_matrix", kGradQ};
    case AttentionMatrixKernel::kGradQKept:
      return {"attention_grad_q_kept_matrix", kGradQ};
    case AttentionMatrixKernel::kGradKv:
      return {"attention_grad_kv_matrix", kGradKv};
    case AttentionMatrixKernel::kGradKvKeep:
      break;
  }
  return {"attention_grad_kv_keep_matrix", kGradKv};
}

}  // namespace

std::string attention_load_function(std::string_view name, int64_t head_dim) {
  if (head_dim % 4 == 0) {
    return fmt::format(
        "fn load_{0}(at: u32, unit: u32) -> vec4<f32> {{ return {0}[at * UNITS + unit]; }}\n",
        name);
  }
  return fmt::format(R"(fn load_{0}(at: u32, unit: u32) -> vec4<f32> {{
  let i = at * HEAD_DIM + unit * 4u;
  let left = HEAD_DIM - unit * 4u;
  var x = vec4<f32>({0}[i], 0.0, 0.0, 0.0);
  if (left > 1u) {{ x.y = {0}[i + 1u]; }}
  if (left > 2u) {{ x.z = {0}[i + 2u]; }}
  if (left > 3u) {{ x.w = {0}[i + 3u]; }}
  return x;
}}
)",
                     name);
}

std::string attention_constants(int64_t rows, int64_t head_dim) {
  constexpr int64_t kStage = 384;  // STAGE of lib_attention_tile.wgsl
  const int64_t units = (head_dim + 3) / 4;
  const int64_t lanes = units > 8 ? 16 : units > 4 ? 8 : 4;
  int64_t batch = 32;  // rows of values staged at once
  while (batch * units > kStage) batch /= 2;
  return fmt::format(
      "alias Cell = {};\nconst HEAD_DIM: u32 = {}u;\nconst UNITS: u32 = {}u;\n"
      "const ROWS: u32 = {}u;\nconst VALUE_LANES: u32 = {}u;\nconst VALUE_UNITS: u32 = {}u;\n"
      "const BATCH: u32 = {}u;\n",
      head_dim % 4 == 0 ? "vec4<f32>" : "f32", head_dim, units, rows, lanes,
      (units + lanes - 1) / lanes, batch);
}

int64_t attention_tile_rows(AttentionKernel kernel, int64_t head_dim) {
  // Two sums of 64 rows would not fit in registers for the widest heads.
  return kernel == AttentionKernel::kGradKv && head_dim > 128 ? 32 : 64;
}

gpu::KernelSpec attention_kernel(AttentionKernel kernel, int64_t head_dim, float soft_cap) {
  const Parts part = parts(kernel);
  gpu::KernelSpec spec;
  spec.source = part.file;
  spec.entry_point = part.file;
  spec.prelude = attention_constants(attention_tile_rows(kernel, head_dim), head_dim);
  for (std::string_view name : part.loads) spec.prelude += attention_load_function(name, head_dim);
  for (std::string_view name : part.stores) spec.prelude += store_function(name, head_dim);
  spec.prelude += gpu::kernel_source("lib_attention_common");
  if (part.first_key) spec.prelude += gpu::kernel_source("lib_attention_first_key");
  if (part.tile) spec.prelude += gpu::kernel_source("lib_attention_tile");
  if (part.scores) spec.prelude += scores_text(soft_cap);
  return spec;
}

const gpu::KernelSpec& attention_matrix_kernel(AttentionMatrixKernel kernel, int64_t head_dim,
                                               float soft_cap) {
  static std::mutex mutex;
  static std::map<std::tuple<AttentionMatrixKernel, int64_t, float>, gpu::KernelSpec> specs;
  const std::lock_guard lock(mutex);
  // It reads gradients of scores before any cap.
  if (kernel == AttentionMatrixKernel::kGradQKept) soft_cap = 0.0f;
  const auto [at, made] = specs.try_emplace({kernel, head_dim, soft_cap});
  if (!made) return at->second;
  const auto& [name, stores] = matrix_parts(kernel);
  gpu::KernelSpec& spec = at->second;
  spec.source = name;
  spec.entry_point = "main";
  spec.permanent = true;
  std::string& text = spec.generated_text;
  text = attention_matrix_directives() + attention_constants(0, head_dim);
  for (std::string_view tensor : stores) text += store_function(tensor, head_dim);
  text += gpu::kernel_source("lib_attention_common");
  if (stores.data() != kGradKv) text += gpu::kernel_source("lib_attention_first_key");
  if (soft_cap > 0.0f) text += cap_text(soft_cap);
  text += attention_matrix_source(kernel, attention_packed_dim(head_dim), soft_cap > 0.0f);
  return spec;
}

}  // namespace wgrad::ops
