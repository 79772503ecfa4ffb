#include <fmt/format.h>

#include <cmath>

#include "cpu/embedding.h"
#include "ops/embedding.h"
#include "ops/f16_blocks.h"
#include "ops/verify_families.h"
#include "ops/verify_product.h"

namespace wgrad::ops {
namespace {

struct EmbeddingCase {
  int64_t vocab, h, tokens;
};

/// Ids with repeats, the first and the last row among them.
std::vector<uint32_t> ids_of(EmbeddingCase c) {
  std::vector<uint32_t> ids(static_cast<size_t>(c.tokens));
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t spread = i % 3 == 0 ? i * 40503u : i / 7;
    ids[i] = static_cast<uint32_t>(spread % static_cast<size_t>(c.vocab));
  }
  if (ids.size() > 1) ids[1] = static_cast<uint32_t>(c.vocab - 1);
  return ids;
}

/// f16 bits of every kind: normal, subnormal, zero, both signs; never infinity.
uint16_t half_bits(size_t i) {
  const uint32_t mixed = static_cast<uint32_t>(i) * 2654435761u >> 13;
  return static_cast<uint16_t>((mixed & 0x8000u) | (mixed % 0x7c00u));
}

constexpr float kScale = 0.0625f;

/// The table in an f16 format, with the value that each element must have.
Weight half_table(Context& ctx, EmbeddingCase c, WeightFormat format, std::vector<float>& values) {
  const bool blocks = format == WeightFormat::kF16Blocks;
  const int64_t size = blocks ? f16_blocks_size(c.vocab, c.h) : c.vocab * c.h;
  std::vector<uint16_t> stored(static_cast<size_t>((size + 1) / 2 * 2));
  values.resize(static_cast<size_t>(c.vocab * c.h));
  for (int64_t r = 0; r < c.vocab; ++r) {
    for (int64_t k = 0; k < c.h; ++k) {
      const size_t i = static_cast<size_t>(r * c.h + k);
      const size_t at = blocks ? static_cast<size_t>(f16_blocks_index(r, k, c.h)) : i;
      stored[at] = half_bits(i);
      values[i] = static_cast<float>(half_value(stored[at])) * kScale;
    }
  }
  Weight table;
  table.format = format;
  table.out_features = c.vocab;
  table.in_features = c.h;
  table.scale = kScale;
  table.name = "verify";
  table.data =
      ctx.make<uint16_t>({static_cast<int64_t>(stored.size())}, DType::kF16, stored, "verify");
  if (!blocks) table.data = table.data.flat(0, size).reshape({c.vocab, c.h});
  return table;
}

VerifyResult forward_case(Context& ctx, const std::string& what, EmbeddingCase c,
                          WeightFormat format) {
  VerifyCheck check("embedding_forward", what, "core");
  const std::vector<uint32_t> ids = ids_of(c);
  std::vector<float> values = verify_decades(static_cast<size_t>(c.vocab * c.h), 61);
  Weight table;
  if (format == WeightFormat::kF32) {
    table.out_features = c.vocab;
    table.in_features = c.h;
    table.data = ctx.make<float>({c.vocab, c.h}, DType::kF32, values, "verify");
  } else {
    table = half_table(ctx, c, format, values);
  }
  std::vector<float> expected(static_cast<size_t>(c.tokens * c.h));
  cpu::embedding_forward(ids.data(), values.data(), expected.data(), c.tokens, c.h);
  const Tensor t = ctx.make<uint32_t>({c.tokens}, DType::kU32, ids, "verify");
  const Tensor out = ctx.allocate({c.tokens, c.h}, DType::kF32, "verify");
  embedding_forward(ctx, t, table, out);
  check.require(ctx.read<float>(out) == expected, "rows come through unchanged");
  return check.result();
}

VerifyResult backward_case(Context& ctx, const std::string& what, EmbeddingCase c) {
  VerifyCheck check("embedding_backward", what, "core");
  const std::vector<uint32_t> ids = ids_of(c);
  const std::vector<float> grad = verify_decades(static_cast<size_t>(c.tokens * c.h), 62);
  const std::vector<float> before = verify_uniform(static_cast<size_t>(c.vocab * c.h), 63);
  std::vector<double> expected = to_double(before), size(before.size()), count(before.size());
  cpu::embedding_backward(ids.data(), to_double(grad).data(), expected.data(), c.tokens, c.h);
  const size_t h = static_cast<size_t>(c.h);
  for (size_t t = 0; t < ids.size(); ++t) {
    for (size_t k = 0; k < h; ++k) {
      size[ids[t] * h + k] += std::abs(static_cast<double>(grad[t * h + k]));
      count[ids[t] * h + k] += 1.0;
    }
  }
  const Tensor tg = ctx.make<float>({c.tokens, c.h}, DType::kF32, grad, "verify");
  const Tensor table = ctx.make<float>({c.vocab, c.h}, DType::kF32, before, "verify");
  embedding_backward(ctx, ids, tg, table);
  check.compare("grad_table", ctx.read<float>(table), expected, [&](size_t i) {
    return count[i] * kF32Rounding * (size[i] + std::abs(static_cast<double>(before[i])));
  });
  return check.result();
}

VerifyResult rows_case(Context& ctx, const std::string& what, EmbeddingCase c) {
  VerifyCheck check("gather_rows, scatter_rows", what, "core");
  const size_t h = static_cast<size_t>(c.h);
  const std::vector<float> values = verify_decades(static_cast<size_t>(c.vocab) * h, 64);
  std::vector<uint32_t> rows;
  for (int64_t r = c.vocab - 1; r >= 0; r -= 3) rows.push_back(static_cast<uint32_t>(r));
  const int64_t count = static_cast<int64_t>(rows.size());
  std::vector<float> gathered(rows.size() * h), scattered(values.size(), 0.0f);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t k = 0; k < h; ++k) {
      gathered[i * h + k] = values[rows[i] * h + k];
      scattered[rows[i] * h + k] = gathered[i * h + k];
    }
  }
  const Tensor from = ctx.make<float>({c.vocab, c.h}, DType::kF32, values, "verify");
  const Tensor index = ctx.make<uint32_t>({count}, DType::kU32, rows, "verify");
  const Tensor picked = ctx.allocate({count, c.h}, DType::kF32, "verify");
  const Tensor back = ctx.make<float>({c.vocab, c.h}, DType::kF32, values, "verify");
  gather_rows(ctx, from, index, picked);
  check.require(ctx.read<float>(picked) == gathered, "gathered rows are the rows named");
  scatter_rows(ctx, picked, index, back);
  check.require(ctx.read<float>(back) == scattered, "scattered rows return, others are zero");
  return check.result();
}

}  // namespace

void add_embedding_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases) {
  std::vector<EmbeddingCase> shapes = {
      {1, 1, 1}, {31, 33, 40}, {100, 64, 33}, {257, 40, 1000}, {1000, 576, 70}};
  if (level == VerifyLevel::kFull) {
    shapes.insert(shapes.end(), {{5, 3, 70001}, {151936, 64, 257}, {1000, 257, 66000}});
  }
  for (EmbeddingCase c : shapes) {
    const std::string what = fmt::format("rows {}, width {}, positions {}", c.vocab, c.h, c.tokens);
    const auto add = [&](WeightFormat format, std::string_view name) {
      const std::string full = fmt::format("{}, {}", what, name);
      cases.push_back({"embedding_forward", full,
                       [=](Context& context) { return forward_case(context, full, c, format); }});
    };
    add(WeightFormat::kF32, "f32");
    if (ctx.modelled() == DeviceKind::kGpu) {
      add(WeightFormat::kF16, "f16");
      add(WeightFormat::kF16Blocks, "f16 blocks");
    }
    cases.push_back({"embedding_backward", what,
                     [=](Context& context) { return backward_case(context, what, c); }});
    cases.push_back({"gather_rows, scatter_rows", what,
                     [=](Context& context) { return rows_case(context, what, c); }});
  }
}

}  // namespace wgrad::ops
