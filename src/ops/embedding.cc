#include "ops/embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "cpu/embedding.h"
#include "ops/elementwise.h"
#include "ops/f16_blocks.h"
#include "ops/launch.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

// Mirrors Params of embedding.wgsl.
struct Params {
  uint32_t count, h, row_begin, row_end;
  float scale;
  uint32_t padded_h;
};
static_assert(sizeof(Params) == 24);

// Mirrors BackwardParams of embedding.wgsl.
struct BackwardParams {
  uint32_t first_group, groups, h, row_begin, offsets_at, positions_at;
};
static_assert(sizeof(BackwardParams) == 24);

gpu::KernelSpec kernel_for(std::string_view entry_point, int64_t lanes) {
  gpu::KernelSpec kernel;
  kernel.source = "embedding";
  kernel.entry_point = entry_point;
  kernel.prelude = vector_prelude(lanes);
  return kernel;
}

/// A table that is read row by row, in parts of rows that fit a binding.
struct Table {
  std::string_view entry_point;
  Tensor rows;      ///< [rows, elements a row of the layout]
  int64_t lanes;    ///< elements a Vec of the kernel
  int64_t granule;  ///< parts begin at multiples of this many rows
  int64_t padded_h = 0;
  float scale = 1.0f;
};

Table table_of(const Weight& weight) {
  const int64_t v = weight.out_features, h = weight.in_features;
  switch (weight.format) {
    case WeightFormat::kF32:
      return {"embedding_forward_f32", weight.data.reshape({v, h}), vector_lanes(h), 64};
    case WeightFormat::kF16:
      return {"embedding_forward_f16", weight.data.reshape({v, h}), 1, 128, 0, weight.scale};
    case WeightFormat::kF16Blocks:
      return {"embedding_forward_f16_blocks",
              weight.data.reshape({f16_padded(v), f16_padded(h)}),
              1,
              kF16Panel,
              f16_padded(h),
              weight.scale};
    case WeightFormat::kNF4:
      break;
  }
  throw runtime_failure("embedding_forward", fmt::format("a table in NF4 ({})", weight.name),
                        "expected f32 or f16");
}

/// out[t] = table[ids[t]] on the GPU: parts of the table by parts of the positions.
void lookup(Context& ctx, std::string_view function, const Tensor& ids, const Table& table,
            int64_t h, const Tensor& out_rows) {
  const int64_t rows = table.rows.dim(0);
  const int64_t row_bytes = table.rows.dim(1) * dtype_size(table.rows.dtype());
  const int64_t part = rows_per_binding(ctx, function, rows, row_bytes, table.granule);
  const gpu::KernelSpec kernel = kernel_for(table.entry_point, table.lanes);
  for_row_parts(ctx, function, out_rows.dim(0), h * 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < rows; row += part) {
      const int64_t row_end = std::min(rows, row + part);
      const Params params{static_cast<uint32_t>(end - begin),
                          static_cast<uint32_t>(h / table.lanes),
                          static_cast<uint32_t>(row),
                          static_cast<uint32_t>(row_end),
                          table.scale,
                          static_cast<uint32_t>(table.padded_h)};
      launch(ctx, kernel,
             {in(ids.flat(begin, end - begin)), in(table.rows.rows(row, row_end)),
              out(out_rows.rows(begin, end))},
             params, invocations((end - begin) * (h / table.lanes)));
    }
  });
}

void check_ids(std::string_view function, const uint32_t* ids, int64_t count, int64_t rows) {
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] >= rows) {
      throw runtime_failure(function, fmt::format("row {} at position {}", ids[i], i),
                            fmt::format("expected a row below {}", rows));
    }
  }
}

/// The positions of each distinct id, in order: ids, then offsets, then positions.
struct Groups {
  std::vector<uint32_t> ids, offsets, positions;

  explicit Groups(std::span<const uint32_t> of) : positions(of.size()) {
    std::iota(positions.begin(), positions.end(), 0u);
    std::stable_sort(positions.begin(), positions.end(),
                     [&](uint32_t a, uint32_t b) { return of[a] < of[b]; });
    for (size_t i = 0; i < positions.size(); ++i) {
      const uint32_t id = of[positions[i]];
      if (!ids.empty() && ids.back() == id) continue;
      ids.push_back(id);
      offsets.push_back(static_cast<uint32_t>(i));
    }
    offsets.push_back(static_cast<uint32_t>(positions.size()));
  }
};

/// One part of the positions.
void backward_part(Context& ctx, std::span<const uint32_t> ids, const Tensor& grad_out,
                   const Tensor& grad_table, const Tensor& lists) {
  const Groups groups_of_ids(ids);
  const int64_t count = static_cast<int64_t>(ids.size());
  std::vector<uint32_t> words(static_cast<size_t>(lists.size()));
  std::copy(groups_of_ids.ids.begin(), groups_of_ids.ids.end(), words.begin());
  std::copy(groups_of_ids.offsets.begin(), groups_of_ids.offsets.end(), words.begin() + count);
  std::copy(groups_of_ids.positions.begin(), groups_of_ids.positions.end(),
            words.begin() + 2 * count + 1);
  ctx.upload(lists, std::span<const uint32_t>(words));

  const int64_t rows = grad_table.dim(0), h = grad_table.dim(1);
  const int64_t lanes = vector_lanes(h);
  const gpu::KernelSpec kernel = kernel_for("embedding_backward", lanes);
  for_row_parts(ctx, "embedding_backward", rows, h * 4, [&](int64_t row, int64_t row_end) {
    const auto first = std::lower_bound(groups_of_ids.ids.begin(), groups_of_ids.ids.end(), row);
    const auto last = std::lower_bound(first, groups_of_ids.ids.end(), row_end);
    if (first == last) return;
    const BackwardParams params{static_cast<uint32_t>(first - groups_of_ids.ids.begin()),
                                static_cast<uint32_t>(last - first),
                                static_cast<uint32_t>(h / lanes),
                                static_cast<uint32_t>(row),
                                static_cast<uint32_t>(count),
                                static_cast<uint32_t>(2 * count + 1)};
    launch(ctx, kernel, {in(lists), in(grad_out), out(grad_table.rows(row, row_end))}, params,
           groups(last - first));
  });
}

}  // namespace

void embedding_forward(Context& ctx, const Tensor& ids, const Weight& table, const Tensor& out) {
  constexpr std::string_view kName = "embedding_forward";
  const int64_t tokens = ids.size(), h = table.in_features;
  expect_elements(kName, "ids", ids, DType::kU32, tokens);
  expect_tensor(kName, "out", out, DType::kF32, {tokens, h});
  const Table layout = table_of(table);
  if (out.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    if (table.format != WeightFormat::kF32) {
      throw runtime_failure(kName, fmt::format("{} in f16 on the CPU", table.name),
                            "expected a table in f32");
    }
    check_ids(kName, ids.data<uint32_t>(), tokens, table.out_features);
    cpu::embedding_forward(ids.data<uint32_t>(), table.data.data<float>(), out.data<float>(),
                           tokens, h);
    return;
  }
  lookup(ctx, kName, ids, layout, h, out);
}

void embedding_backward(Context& ctx, std::span<const uint32_t> ids, const Tensor& grad_out,
                        const Tensor& grad_table) {
  constexpr std::string_view kName = "embedding_backward";
  const int64_t tokens = static_cast<int64_t>(ids.size());
  expect_matrix(kName, "grad_table", grad_table, DType::kF32);
  const int64_t rows = grad_table.dim(0), h = grad_table.dim(1);
  expect_tensor(kName, "grad_out", grad_out, DType::kF32, {tokens, h});
  check_ids(kName, ids.data(), tokens, rows);
  if (grad_out.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    cpu::embedding_backward(ids.data(), grad_out.data<float>(), grad_table.data<float>(), tokens,
                            h);
    return;
  }
  if (ctx.modelled() == DeviceKind::kCpu) return;
  for_row_parts(ctx, kName, tokens, h * 4, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    Tensor lists = ctx.allocate({3 * count + 1}, DType::kU32, "scratch/embedding");
    backward_part(ctx, ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
                  grad_out.rows(begin, end), grad_table, lists);
  });
}

void gather_rows(Context& ctx, const Tensor& from, const Tensor& rows, const Tensor& to) {
  constexpr std::string_view kName = "gather_rows";
  expect_matrix(kName, "from", from, DType::kF32);
  const int64_t count = rows.size(), h = from.dim(1);
  expect_elements(kName, "rows", rows, DType::kU32, count);
  expect_tensor(kName, "to", to, DType::kF32, {count, h});
  if (to.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    check_ids(kName, rows.data<uint32_t>(), count, from.dim(0));
    cpu::embedding_forward(rows.data<uint32_t>(), from.data<float>(), to.data<float>(), count, h);
    return;
  }
  lookup(ctx, kName, rows, {"embedding_forward_f32", from, vector_lanes(h), 64}, h, to);
}

void scatter_rows(Context& ctx, const Tensor& from, const Tensor& rows, const Tensor& to) {
  constexpr std::string_view kName = "scatter_rows";
  expect_matrix(kName, "to", to, DType::kF32);
  const int64_t count = rows.size(), h = to.dim(1), to_rows = to.dim(0);
  expect_elements(kName, "rows", rows, DType::kU32, count);
  expect_tensor(kName, "from", from, DType::kF32, {count, h});
  fill_zero(ctx, to);
  if (from.size() == 0) return;
  if (ctx.kind() == DeviceKind::kCpu) {
    const uint32_t* ids = rows.data<uint32_t>();
    check_ids(kName, ids, count, to_rows);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(to.data<float>() + ids[i] * h, from.data<float>() + i * h,
                  static_cast<size_t>(h) * sizeof(float));
    }
    return;
  }
  const int64_t lanes = vector_lanes(h);
  const gpu::KernelSpec kernel = kernel_for(kName, lanes);
  for_row_parts(ctx, kName, count, h * 4, [&](int64_t begin, int64_t end) {
    for_row_parts(ctx, kName, to_rows, h * 4, [&](int64_t row, int64_t row_end) {
      const Params params{static_cast<uint32_t>(end - begin),
                          static_cast<uint32_t>(h / lanes),
                          static_cast<uint32_t>(row),
                          static_cast<uint32_t>(row_end),
                          1.0f,
                          0};
      launch(ctx, kernel,
             {in(rows.flat(begin, end - begin)), in(from.rows(begin, end)),
              out(to.rows(row, row_end))},
             params, invocations((end - begin) * (h / lanes)));
    });
  });
}

}  // namespace wgrad::ops
