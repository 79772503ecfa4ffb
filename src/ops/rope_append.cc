#include "ops/rope_append.h"

#include <fmt/format.h>

#include "ops/launch.h"
#include "ops/window.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

// Mirrors Params of rope_append.wgsl.
struct Params {
  uint32_t heads, kv_heads, head_dim, half;
  uint32_t q_offset, k_offset, v_offset, keys_offset;
  uint32_t values_offset, max_position;
  float eps, norm_add;
};
static_assert(sizeof(Params) == 48);

}  // namespace

void rope_append(Context& ctx, const RopeAppend& c) {
  constexpr std::string_view kName = "rope_append";
  const int64_t kv = c.k.rank() == 2 ? c.k.dim(1) : 0, dim = c.head_dim;
  if (ctx.modelled() != DeviceKind::kGpu || dim <= 0 || kv == 0 || kv % dim != 0 ||
      c.q.dim(1) % dim != 0 || c.rotary_dim % 2 != 0 || c.rotary_dim > dim ||
      c.q.storage() != c.k.storage() || c.q.storage() != c.v.storage()) {
    throw runtime_failure(
        kName, fmt::format("q {}, k {}, head_dim {}", c.q.describe(), c.k.describe(), dim),
        "expected whole heads of one token, in one memory of a GPU");
  }
  expect_tensor(kName, "q", c.q, DType::kF32, {1, c.q.dim(1)});
  expect_tensor(kName, "v", c.v, DType::kF32, {1, kv});
  expect_elements(kName, "position", c.position, DType::kU32, 1);
  expect_tensor(kName, "turned", c.turned, DType::kF32, c.q.shape());
  if (c.rotary_dim > 0) {
    expect_tensor(kName, "table", c.table, DType::kF32, {c.table.dim(0), c.rotary_dim / 2, 2});
  }
  expect_tensor(kName, "keys", c.keys, DType::kF32, {c.keys.dim(0), kv});
  expect_tensor(kName, "values", c.values, DType::kF32, c.keys.shape());
  if (c.row < 0 || c.row >= c.keys.dim(0)) {
    throw runtime_failure(kName, fmt::format("row {} of {}", c.row, c.keys.describe()),
                          "expected one of the cache");
  }
  const bool norm = static_cast<bool>(c.q_norm.weight);
  const bool whole = norm && c.q_norm.weight.size() != dim;
  if (norm) {
    expect_elements(kName, "q_norm", c.q_norm.weight, DType::kF32, whole ? c.q.dim(1) : dim);
    expect_elements(kName, "k_norm", c.k_norm.weight, DType::kF32, whole ? kv : dim);
  }

  // The whole cache is bound where it fits, so that tokens share a bind group.
  const bool fits = c.keys.bytes() <= binding_limit(ctx);
  const int64_t first = fits ? 0 : c.row;
  const auto part = [&](const Tensor& cache) {
    return window(fits ? cache : cache.rows(c.row, c.row + 1));
  };
  const Window keys = part(c.keys), values = part(c.values);
  const auto row_at = static_cast<uint32_t>((c.row - first) * kv);
  const auto element = [](const Tensor& t) { return static_cast<uint32_t>(t.byte_offset() / 4); };
  Tensor x = from_storage_start(c.q);
  for (const Tensor* t : {&c.k, &c.v}) {
    const Tensor other = from_storage_start(*t);
    if (other.size() > x.size()) x = other;
  }
  Params p{};
  p.heads = static_cast<uint32_t>(c.q.dim(1) / dim);
  p.kv_heads = static_cast<uint32_t>(kv / dim);
  p.head_dim = static_cast<uint32_t>(dim);
  p.half = static_cast<uint32_t>(c.rotary_dim / 2);
  p.q_offset = element(c.q), p.k_offset = element(c.k), p.v_offset = element(c.v);
  p.keys_offset = keys.offset + row_at, p.values_offset = values.offset + row_at;
  p.max_position = c.rotary_dim > 0 ? static_cast<uint32_t>(c.table.dim(0)) : 1;
  p.eps = c.q_norm.eps;
  p.norm_add = c.q_norm.add;

  gpu::KernelSpec kernel;
  kernel.source = "rope_append";
  kernel.entry_point = "rope_append";
  kernel.overrides = {{"NORM", norm ? 1.0 : 0.0}, {"WHOLE", whole ? 1.0 : 0.0}};
  launch(
      ctx, kernel,
      {in(c.position), in(c.rotary_dim > 0 ? c.table : x), in(norm ? c.q_norm.weight : x),
       in(norm ? c.k_norm.weight : x), in(x), out(c.turned), out(keys.tensor), out(values.tensor)},
      p, groups(int64_t{p.heads} + 2 * p.kv_heads));
}

}  // namespace wgrad::ops
