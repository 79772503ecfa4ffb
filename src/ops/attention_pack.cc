#include "ops/attention_pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "ops/attention_source.h"
#include "ops/launch.h"

namespace wgrad::ops {
namespace {

/// Workgroups that share a tensor; each of those that pack reduces the numbers of all.
constexpr int64_t kParts = 1024;
/// Vectors of four that make it worth another.
constexpr int64_t kVectorsPerPart = 1024;

/// Mirrors Params of kernels/attention_pack.wgsl.
struct PackParams {
  std::array<uint32_t, 3> cells;
  uint32_t first_slot, one;
};
static_assert(sizeof(PackParams) == 20);

/// The bindings and accessors for one tensor (grad_out) or for three, of which the last two share
/// an output.
std::string pack_prelude(int64_t tensors, int64_t head_dim) {
  std::string text = attention_constants(0, head_dim);
  text +=
      fmt::format("const PACKED_UNITS: u32 = {}u;\nconst CELL_PARTS: u32 = {}u;\n",
                  attention_packed_dim(head_dim) / 8, head_dim % 4 == 0 ? head_dim / 4 : head_dim);
  std::string element, load, store;
  for (int64_t i = 0; i < tensors; ++i) {
    text += fmt::format("@group(0) @binding({0}) var<storage, read> from{0}: array<Cell>;\n", i);
    text += attention_load_function(fmt::format("from{}", i), head_dim);
    const std::string when = i + 1 < tensors ? fmt::format("if (tensor == {}u) ", i) : "";
    element += fmt::format("  {}{{ return from{}[i]; }}\n", when, i);
    load += fmt::format("  {}{{ return load_from{}(cell, unit); }}\n", when, i);
  }
  const auto bind = [&](int64_t at, const char* declaration) {
    text += fmt::format("@group(0) @binding({}) var<{};\n", at, declaration);
  };
  bind(tensors, "storage, read_write> parts: array<f32>");
  bind(tensors + 1, "uniform> largest_params: Params");
  bind(tensors, "storage, read> all_parts: array<f32>");
  bind(tensors + 1, "storage, read_write> factors: array<vec2<f32>>");
  bind(tensors + 2, "storage, read_write> to_first: array<vec4<u32>>");
  if (tensors == 3) {
    bind(tensors + 3, "storage, read_write> to_others: array<vec4<u32>>");
    store =
        "  if (tensor == 0u) { to_first[i] = halves; return; }\n"
        "  to_others[select(0u, pack_params.cells1 * PACKED_UNITS, tensor == 2u) + i] = halves;\n";
  } else {
    store = "  to_first[i] = halves;\n";
  }
  bind(tensors == 3 ? tensors + 4 : tensors + 3, "uniform> pack_params: Params");
  return text + "fn element(tensor: u32, i: u32) -> Cell {\n" + element + "}\n" +
         "fn load(tensor: u32, cell: u32, unit: u32) -> vec4<f32> {\n" + load + "}\n" +
         "fn store(tensor: u32, i: u32, halves: vec4<u32>) {\n" + store + "}\n";
}

/// `to`: the outputs in the order of their bindings.
void pack(Context& ctx, int64_t head_dim, const std::vector<Tensor>& from, const Tensor& factors,
          int64_t first_slot, const std::vector<Tensor>& to) {
  PackParams params{};
  params.first_slot = static_cast<uint32_t>(first_slot);
  params.one = 1;
  int64_t largest = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    params.cells.at(i) = static_cast<uint32_t>(from[i].size() / head_dim);
    largest = std::max(largest, from[i].size());
  }
  const int64_t parts = std::clamp<int64_t>(ceil_div(largest, 4 * kVectorsPerPart), 1, kParts);
  const auto count = static_cast<int64_t>(from.size());
  const Tensor maxima = ctx.allocate({count * parts}, DType::kF32, "scratch/attention_operands");
  gpu::KernelSpec spec;
  spec.source = "attention_pack";
  spec.prelude = pack_prelude(count, head_dim);
  const gpu::Workgroups workgroups{static_cast<uint32_t>(parts), static_cast<uint32_t>(count), 1};

  std::vector<Argument> arguments;
  for (const Tensor& t : from) arguments.push_back(in(t));
  arguments.push_back(out(maxima));
  const auto bytes = std::as_bytes(std::span<const PackParams>(&params, 1));
  spec.entry_point = "attention_largest";
  launch(ctx, spec, arguments, bytes, workgroups);

  arguments.back().written = false;
  arguments.push_back(out(factors));
  for (const Tensor& t : to) arguments.push_back(out(t));
  spec.entry_point = "attention_pack";
  launch(ctx, spec, arguments, bytes, workgroups);
}

Tensor packed(Context& ctx, int64_t head_dim, int64_t elements, const char* label) {
  return ctx.allocate({elements / head_dim, attention_packed_dim(head_dim)}, DType::kF16, label);
}

}  // namespace

AttentionOperands attention_pack(Context& ctx, int64_t head_dim, const Tensor& q, const Tensor& k,
                                 const Tensor& v) {
  constexpr const char* kLabel = "activations/attention operands";
  AttentionOperands o;
  o.q = packed(ctx, head_dim, q.size(), kLabel);
  o.kv = packed(ctx, head_dim, k.size() + v.size(), kLabel);
  o.factors = ctx.allocate({4, 2}, DType::kF32, kLabel);
  pack(ctx, head_dim, {q, k, v}, o.factors, 0, {o.q, o.kv});
  return o;
}

Tensor attention_pack_grad(Context& ctx, int64_t head_dim, const Tensor& grad_out,
                           const Tensor& factors) {
  Tensor to = packed(ctx, head_dim, grad_out.size(), "scratch/attention_operands");
  pack(ctx, head_dim, {grad_out}, factors, 3, {to});
  return to;
}

}  // namespace wgrad::ops
