#include "ops/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "cpu/attention.h"
#include "ops/attention_matrix.h"
#include "ops/attention_source.h"
#include "ops/launch.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

constexpr std::string_view kFunction = "attention";
constexpr double kLog2E = 1.4426950408889634;

/// Few queries against many keys are split by keys, so that they fill the device.
constexpr int64_t kDecodeQueries = 8;

void check_shape(const AttentionShape& s) {
  if (s.heads < 1 || s.kv_heads < 1 || s.heads % s.kv_heads != 0) {
    throw runtime_failure(kFunction, fmt::format("{} heads on {} key heads", s.heads, s.kv_heads),
                          "expected a multiple of the key heads");
  }
  if (s.head_dim < 1 || s.head_dim > 256) {
    throw runtime_failure(kFunction, fmt::format("head_dim {}", s.head_dim), "expected 1 to 256");
  }
  if (s.query_offset < 0 || s.window < 0) {
    throw runtime_failure(kFunction,
                          fmt::format("query_offset {}, window {}", s.query_offset, s.window),
                          "expected none below 0");
  }
  if (!(s.soft_cap >= 0.0f)) {
    throw runtime_failure(kFunction, fmt::format("soft_cap {}", s.soft_cap),
                          "expected 0 (none) or more");
  }
}

cpu::AttentionShape cpu_shape(const AttentionShape& s, int64_t queries, int64_t keys) {
  cpu::AttentionShape shape;
  shape.queries = queries;
  shape.keys = keys;
  shape.query_heads = s.heads;
  shape.kv_heads = s.kv_heads;
  shape.head_dim = s.head_dim;
  shape.query_offset = s.query_offset;
  shape.window = s.window;
  shape.scale = static_cast<double>(s.scale);
  shape.soft_cap = static_cast<double>(s.soft_cap);
  return shape;
}

AttentionParams params_for(const AttentionShape& s, int64_t queries, int64_t keys) {
  AttentionParams p{};
  p.queries = static_cast<uint32_t>(queries);
  p.keys = static_cast<uint32_t>(keys);
  p.query_offset = static_cast<uint32_t>(s.query_offset);
  p.window = static_cast<uint32_t>(s.window);
  p.heads = static_cast<uint32_t>(s.heads);
  p.kv_heads = static_cast<uint32_t>(s.kv_heads);
  p.scale = s.scale;
  p.one = 1;
  p.scale_log2e = static_cast<float>(static_cast<double>(s.scale) * kLog2E);
  return p;
}

void dispatch(Context& ctx, AttentionKernel kernel, const AttentionShape& s,
              std::initializer_list<Argument> arguments, AttentionParams params, int64_t count) {
  params.groups = static_cast<uint32_t>(count);
  launch(ctx, attention_kernel(kernel, s.head_dim, s.soft_cap), arguments, params, groups(count));
}

/// Whole rows of the batch that one set of dispatches covers: tokens [first, end), bound from
/// `origin` on, a multiple of 64 so that every tensor's part begins where a binding may.
struct Segment {
  int64_t origin, first, end;
};

/// Segments begin at multiples of this, where a binding of any of the tensors may.
constexpr int64_t kSegmentAlign = 64;

/// Tokens that every tensor of a segment, f16 operands included, fits a binding with.
int64_t tokens_per_segment(Context& ctx, const AttentionShape& s, int64_t tokens) {
  const int64_t dim = attention_uses_matrices(ctx, s, tokens) ? attention_packed_dim(s.head_dim)
                                                              : std::max<int64_t>(s.head_dim, 2);
  const int64_t token_bytes =
      std::max(s.heads, s.kv_heads) * std::max(dim, s.head_dim) * int64_t{sizeof(float)};
  return rows_per_binding(ctx, kFunction, tokens, token_bytes, kSegmentAlign);
}

/// One segment where every tensor fits a binding; else as many rows a segment as fit.
std::vector<Segment> segments(Context& ctx, const AttentionShape& s, int64_t queries, int64_t keys,
                              const Tensor& row_begin) {
  const int64_t fits = tokens_per_segment(ctx, s, std::max(queries, keys));
  if (std::max(queries, keys) <= fits) return {{0, 0, queries}};
  if (ctx.kind() == DeviceKind::kPlan) {  // which does not know the rows
    std::vector<Segment> full;
    for (int64_t first = 0; first < queries; first += fits) {
      full.push_back({first, first, std::min(queries, first + fits)});
    }
    return full;
  }
  std::vector<uint32_t> begins(static_cast<size_t>(queries), 0);
  if (queries == keys && s.query_offset == 0) begins = ctx.read<uint32_t>(row_begin);
  std::vector<Segment> result;
  int64_t first = 0;
  while (first < queries) {
    const int64_t origin = first / kSegmentAlign * kSegmentAlign;
    // The last row boundary that keeps the segment within a binding.
    int64_t end = first;
    for (int64_t i = first + 1; i <= std::min(queries, origin + fits); ++i) {
      if (i == queries || begins[static_cast<size_t>(i)] == static_cast<uint32_t>(i)) end = i;
    }
    if (end == first) {
      throw input_error(
          kFunction,
          fmt::format("a row of more than {} tokens with {} heads of {}", origin + fits - first,
                      s.heads, s.head_dim),
          fmt::format("this device binds at most {} bytes", ctx.limits().max_binding_size),
          "choose a smaller --max-seq-len");
    }
    result.push_back({origin, first, end});
    first = end;
  }
  return result;
}

/// Where there are several segments, queries and keys are the same tokens.
AttentionParams segment_params(const AttentionShape& s, const Segment& segment, int64_t queries,
                               int64_t keys) {
  const int64_t tokens = segment.end - segment.origin;
  AttentionParams p = params_for(s, tokens, queries == keys ? tokens : keys);
  p.first_token = static_cast<uint32_t>(segment.first - segment.origin);
  p.origin = static_cast<uint32_t>(segment.origin);
  return p;
}

void forward_by_keys(Context& ctx, const AttentionShape& s, const Tensor& q, const Tensor& k,
                     const Tensor& v, const Tensor& row_begin, const Tensor& out,
                     const Tensor& logsumexp, int64_t keys) {
  const int64_t queries = q.dim(0);
  const int64_t splits = ceil_div(keys, kDecodeKeys);
  const int64_t parts = queries * s.heads * splits;
  const Tensor part_sum =
      ctx.allocate({parts, ceil_div(s.head_dim, 4) * 4}, DType::kF32, "scratch/attention_parts");
  const Tensor part_total = ctx.allocate({parts, 2}, DType::kF32, "scratch/attention_parts");
  AttentionParams params = params_for(s, queries, keys);
  params.splits = static_cast<uint32_t>(splits);
  dispatch(ctx, AttentionKernel::kDecode, s,
           {in(q), in(k), in(v), in(row_begin), ops::out(part_sum), ops::out(part_total)}, params,
           parts);
  dispatch(ctx, AttentionKernel::kCombine, s,
           {in(part_sum), in(part_total), ops::out(out), ops::out(logsumexp)}, params,
           queries * s.heads);
}

void check_packed(const AttentionShape& s, const std::vector<Segment>& parts,
                  const std::vector<AttentionOperands>& packed) {
  if (parts.size() != packed.size()) {
    throw runtime_failure(kFunction, fmt::format("{} packed parts", packed.size()),
                          fmt::format("expected {}", parts.size()));
  }
  const int64_t width = attention_packed_dim(s.head_dim);
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t tokens = parts[i].end - parts[i].origin;
    expect_tensor(kFunction, "packed q", packed[i].q, DType::kF16, {tokens * s.heads, width});
    expect_tensor(kFunction, "packed k and v", packed[i].kv, DType::kF16,
                  {2 * tokens * s.kv_heads, width});
  }
}

}  // namespace

AttentionSaved attention_forward(Context& ctx, const AttentionShape& s, const Tensor& q,
                                 const Tensor& k, const Tensor& v, const Tensor& row_begin,
                                 const Tensor& out, const Tensor& logsumexp) {
  check_shape(s);
  const int64_t queries = q.rank() > 0 ? q.dim(0) : 0, rows = k.rank() > 0 ? k.dim(0) : 0;
  const int64_t keys = s.keys > 0 ? std::min(s.keys, rows) : rows;
  expect_tensor(kFunction, "q", q, DType::kF32, {queries, s.heads * s.head_dim});
  expect_tensor(kFunction, "k", k, DType::kF32, {rows, s.kv_heads * s.head_dim});
  expect_tensor(kFunction, "v", v, DType::kF32, {rows, s.kv_heads * s.head_dim});
  expect_tensor(kFunction, "row_begin", row_begin, DType::kU32, {queries});
  expect_tensor(kFunction, "out", out, DType::kF32, q.shape());
  expect_tensor(kFunction, "logsumexp", logsumexp, DType::kF32, {queries, s.heads});
  if (queries + s.query_offset > keys) {
    throw runtime_failure(
        kFunction, fmt::format("{} queries from {} on {} keys", queries, s.query_offset, keys),
        "expected a key for every query");
  }
  const AttentionSaved unpacked{q, k, v, {}};
  if (queries == 0) return unpacked;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::attention_forward(cpu_shape(s, queries, keys), q.data<float>(), k.data<float>(),
                           v.data<float>(), row_begin.data<uint32_t>(), out.data<float>(),
                           logsumexp.data<float>());
    return unpacked;
  }
  if (ctx.modelled() == DeviceKind::kCpu) return unpacked;
  if (queries <= kDecodeQueries && (keys > kDecodeKeys || s.keys > 0)) {
    forward_by_keys(ctx, s, q, k, v, row_begin, out, logsumexp, keys);
    return unpacked;
  }
  const bool matrices = attention_uses_matrices(ctx, s, queries);
  AttentionSaved packed;
  const int64_t tile_rows = attention_tile_rows(AttentionKernel::kForward, s.head_dim);
  for (const Segment& segment : segments(ctx, s, queries, keys, row_begin)) {
    const AttentionParams params = segment_params(s, segment, queries, keys);
    const auto part = [&](const Tensor& t) { return t.rows(segment.origin, segment.end); };
    const auto key_part = [&](const Tensor& t) {
      return t.rows(segment.origin, segment.origin + params.keys);
    };
    if (matrices) {
      packed.packed.push_back(attention_pack(ctx, s.head_dim, part(q), key_part(k), key_part(v)));
      attention_forward_matrix(ctx, s, params, packed.packed.back(), part(row_begin), part(out),
                               part(logsumexp));
      continue;
    }
    dispatch(ctx, AttentionKernel::kForward, s,
             {in(part(q)), in(key_part(k)), in(key_part(v)), in(part(row_begin)),
              ops::out(part(out)), ops::out(part(logsumexp))},
             params, ceil_div(params.queries, tile_rows) * s.heads);
  }
  return matrices ? packed : unpacked;
}

void attention_backward(Context& ctx, const AttentionShape& s, const AttentionSaved& saved,
                        const Tensor& row_begin, const Tensor& row_end, const Tensor& out,
                        const Tensor& logsumexp, const Tensor& grad_out, const Tensor& grad_q,
                        const Tensor& grad_k, const Tensor& grad_v) {
  check_shape(s);
  const auto& [q, k, v, packed] = saved;
  const int64_t tokens = out.rank() > 0 ? out.dim(0) : 0;
  const Shape q_shape{tokens, s.heads * s.head_dim}, k_shape{tokens, s.kv_heads * s.head_dim};
  if (packed.empty()) {
    expect_tensor(kFunction, "q", q, DType::kF32, q_shape);
    expect_tensor(kFunction, "k", k, DType::kF32, k_shape);
    expect_tensor(kFunction, "v", v, DType::kF32, k_shape);
  }
  expect_tensor(kFunction, "row_begin", row_begin, DType::kU32, {tokens});
  expect_tensor(kFunction, "row_end", row_end, DType::kU32, {tokens});
  expect_tensor(kFunction, "out", out, DType::kF32, q_shape);
  expect_tensor(kFunction, "logsumexp", logsumexp, DType::kF32, {tokens, s.heads});
  expect_tensor(kFunction, "grad_out", grad_out, DType::kF32, q_shape);
  expect_tensor(kFunction, "grad_q", grad_q, DType::kF32, q_shape);
  expect_tensor(kFunction, "grad_k", grad_k, DType::kF32, k_shape);
  expect_tensor(kFunction, "grad_v", grad_v, DType::kF32, k_shape);
  if (s.query_offset != 0) {
    throw runtime_failure(kFunction, fmt::format("query_offset {}", s.query_offset),
                          "expected 0: gradients are for training, without a cache");
  }
  if (tokens == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::attention_backward(cpu_shape(s, tokens, tokens), q.data<float>(), k.data<float>(),
                            v.data<float>(), row_begin.data<uint32_t>(), out.data<float>(),
                            logsumexp.data<float>(), grad_out.data<float>(), grad_q.data<float>(),
                            grad_k.data<float>(), grad_v.data<float>());
    return;
  }
  if (ctx.modelled() == DeviceKind::kCpu) return;
  const Tensor statistics =
      ctx.allocate({tokens, 2 * s.heads}, DType::kF32, "scratch/attention_statistics");
  const std::vector<Segment> parts = segments(ctx, s, tokens, tokens, row_begin);
  if (!packed.empty()) check_packed(s, parts, packed);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Segment& segment = parts[i];
    const AttentionParams params = segment_params(s, segment, tokens, tokens);
    const auto part = [&](const Tensor& t) { return t.rows(segment.origin, segment.end); };
    const auto tiles = [&](AttentionKernel kernel) {
      return ceil_div(params.queries, attention_tile_rows(kernel, s.head_dim));
    };
    dispatch(ctx, AttentionKernel::kStatistics, s,
             {in(part(out)), in(part(grad_out)), in(part(logsumexp)), ops::out(part(statistics))},
             params, ceil_div(params.queries * s.heads, 16));
    if (!packed.empty()) {
      attention_backward_matrix(ctx, s, params, packed[i], part(grad_out), part(row_begin),
                                part(row_end), part(statistics), part(grad_q), part(grad_k),
                                part(grad_v));
      continue;
    }
    dispatch(ctx, AttentionKernel::kGradKv, s,
             {in(part(q)), in(part(k)), in(part(v)), in(part(row_end)), in(part(statistics)),
              in(part(grad_out)), ops::out(part(grad_k)), ops::out(part(grad_v))},
             params, tiles(AttentionKernel::kGradKv) * s.kv_heads);
    dispatch(ctx, AttentionKernel::kGradQ, s,
             {in(part(q)), in(part(k)), in(part(v)), in(part(row_begin)), in(part(statistics)),
              in(part(grad_out)), ops::out(part(grad_q))},
             params, tiles(AttentionKernel::kGradQ) * s.heads);
  }
}

}  // namespace wgrad::ops
