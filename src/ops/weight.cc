#include "ops/weight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/elementwise.h"
#include "ops/elementwise.h"
#include "ops/f16_blocks.h"
#include "ops/f16_operand.h"
#include "ops/launch.h"
#include "ops/matmul_f16.h"
#include "ops/nf4.h"
#include "ops/window.h"
#include "wgrad/error.h"

namespace wgrad::ops {

namespace {

struct ConvertParams {
  uint32_t units;
  float factor;
  uint32_t rows, columns, column_blocks, row_begin;
  uint32_t unused[2];
};
static_assert(sizeof(ConvertParams) == 32);

gpu::KernelSpec convert_spec(std::string_view entry_point) {
  return {"f16_convert", entry_point, {}, {}, {}};
}

WeightFormat choose_format(const Context& ctx, WeightPrecision precision, int64_t out_features,
                           int64_t in_features) {
  if (precision == WeightPrecision::kNF4) return WeightFormat::kNF4;
  if (precision == WeightPrecision::kF32 || ctx.modelled() == DeviceKind::kCpu ||
      ctx.compute() == ComputeType::kF32 || !ctx.features().shader_f16) {
    return WeightFormat::kF32;
  }
  if (has_f16_product(ctx)) return WeightFormat::kF16Blocks;
  return in_features % 8 == 0 && out_features % 4 == 0 ? WeightFormat::kF16 : WeightFormat::kF32;
}

/// Rows that are read and passed on at a time: about 16 MiB, a multiple of 64.
int64_t chunk_rows(const Context& ctx, int64_t out_features, int64_t in_features) {
  constexpr int64_t kChunkBytes = int64_t{16} << 20;
  const int64_t bytes = std::max(in_features * 4, f16_padded(in_features) * 2);
  const int64_t rows = std::max<int64_t>(kChunkBytes / bytes / 64 * 64, 64);
  return std::min(rows, rows_per_binding(ctx, "load_weight", out_features, bytes));
}

void check_buffer(const Context& ctx, const Weight& w, int64_t bytes) {
  if (ctx.modelled() != DeviceKind::kGpu || ctx.limits().max_buffer_size == 0) return;
  if (static_cast<uint64_t>(bytes) <= ctx.limits().max_buffer_size) return;
  throw input_error(
      w.name, fmt::format("[{}, {}] takes {} bytes here", w.out_features, w.in_features, bytes),
      fmt::format("this device holds at most {} in one buffer", ctx.limits().max_buffer_size),
      "use --method qlora or --dtype f16");
}

void load_f32(Context& ctx, Weight& w, const RowReader& read_rows) {
  check_buffer(ctx, w, w.out_features * w.in_features * 4);
  w.data = ctx.allocate({w.out_features, w.in_features}, DType::kF32, "weights/" + w.name);
  if (ctx.kind() == DeviceKind::kPlan) return;
  const int64_t step = chunk_rows(ctx, w.out_features, w.in_features);
  std::vector<float> rows;
  for (int64_t begin = 0; begin < w.out_features; begin += step) {
    const int64_t end = std::min(w.out_features, begin + step);
    const Tensor to = w.data.rows(begin, end);
    if (ctx.kind() == DeviceKind::kCpu) {
      read_rows(begin, end, std::span(to.data<float>(), static_cast<size_t>(to.size())));
      continue;
    }
    rows.resize(static_cast<size_t>(to.size()));
    read_rows(begin, end, rows);
    ctx.upload(to, std::span<const float>(rows));
  }
}

/// The f16 values of a weight as its rows come in: one exact power of two for all of them, found
/// from the first rows with room for 16 times larger ones, and lowered on the device should even
/// larger ones follow.
class F16Loader {
 public:
  F16Loader(Context& ctx, Weight& w) : ctx_(ctx), w_(w) {
    const bool blocks = w.format == WeightFormat::kF16Blocks;
    const int64_t halves =
        blocks ? f16_blocks_size(w.out_features, w.in_features) : w.out_features * w.in_features;
    check_buffer(ctx, w, halves * 2);
    const Shape shape = blocks ? Shape{halves} : Shape{w.out_features, w.in_features};
    w.data = ctx.allocate(shape, DType::kF16, "weights/" + w.name);
    scale_ = ctx.allocate({2}, DType::kF32, "scratch/f16_scales");
    staging_rows_ = chunk_rows(ctx, w.out_features, w.in_features);
    staging_ = ctx.allocate({std::min(staging_rows_, w.out_features), w.in_features}, DType::kF32,
                            "scratch/load");
  }

  void load(const RowReader& read_rows) {
    std::vector<float> rows;
    for (int64_t begin = 0; begin < w_.out_features; begin += staging_rows_) {
      const int64_t end = std::min(w_.out_features, begin + staging_rows_);
      rows.resize(static_cast<size_t>((end - begin) * w_.in_features));
      read_rows(begin, end, rows);
      adapt(rows, begin);
      const Tensor part = staging_.rows(0, end - begin);
      ctx_.upload(part, std::span<const float>(rows));
      put(part, begin, end);
    }
    w_.scale = std::ldexp(1.0f, -power_);
  }

 private:
  void adapt(std::span<const float> rows, int64_t done) {
    const float largest = cpu::largest_magnitude(rows.data(), static_cast<int64_t>(rows.size()));
    if (largest == 0.0f) return;
    const int exponent = std::clamp(std::isfinite(largest) ? std::ilogb(largest) : 127, -112, 127);
    if (known_ && exponent + power_ <= 14) return;
    const int power = (known_ ? 14 : 10) - exponent;
    if (known_) rescale(done, std::ldexp(1.0f, power - power_));
    known_ = true;
    power_ = power;
  }

  // Rows before `done` hold values times the old power.
  void rescale(int64_t done, float factor) {
    const int64_t halves = w_.format == WeightFormat::kF16Blocks
                               ? f16_blocks_size(done, w_.in_features)
                               : done * w_.in_features;
    for_row_parts(ctx_, "load_weight", halves / 8, 16, [&](int64_t begin, int64_t end) {
      ConvertParams p{};
      p.units = static_cast<uint32_t>(end - begin);
      p.factor = factor;
      launch(ctx_, convert_spec("rescale"), {out(w_.data.flat(begin * 8, (end - begin) * 8))}, p,
             invocations(end - begin));
    });
  }

  void put(const Tensor& rows, int64_t begin, int64_t end) {
    const float factors[2] = {std::ldexp(1.0f, -power_), std::ldexp(1.0f, power_)};
    if (w_.format == WeightFormat::kF16Blocks) {
      ctx_.upload(scale_, std::span<const float>(factors));
      pack_f16_into(ctx_, rows, end - begin, w_.in_features, scale_, w_.data, begin);
      return;
    }
    ConvertParams p{};
    p.units = static_cast<uint32_t>(rows.size() / 8);
    p.factor = factors[1];
    launch(ctx_, convert_spec("narrow"), {in(rows), out(w_.data.rows(begin, end))}, p,
           invocations(p.units));
  }

  Context& ctx_;
  Weight& w_;
  Tensor scale_, staging_;
  int64_t staging_rows_ = 0;
  bool known_ = false;
  int power_ = 0;
};

void f16_rows_to_f32(Context& ctx, const Weight& w, int64_t row_begin, const Tensor& to) {
  const int64_t rows = to.dim(0);
  ConvertParams p{};
  p.factor = w.scale;
  if (w.format == WeightFormat::kF16) {
    p.units = static_cast<uint32_t>(to.size() / 8);
    launch(ctx, convert_spec("widen"), {in(w.data.rows(row_begin, row_begin + rows)), out(to)}, p,
           invocations(p.units));
    return;
  }
  const int64_t first = row_begin / kF16Panel * kF16Panel;
  p.row_begin = static_cast<uint32_t>(row_begin - first);
  p.rows = static_cast<uint32_t>(rows);
  p.columns = static_cast<uint32_t>(w.in_features);
  p.column_blocks = static_cast<uint32_t>(f16_padded(w.in_features) / 16);
  p.units = p.rows * p.column_blocks * 2;
  const Tensor panels = w.data.flat(f16_blocks_size(first, w.in_features),
                                    f16_blocks_size(p.row_begin + rows, w.in_features));
  launch(ctx, convert_spec("unblock"), {in(panels), out(to)}, p, invocations(p.units));
}

}  // namespace

int64_t Weight::bytes() const {
  return data.bytes() + absmax_codes.bytes() + absmax_scales.bytes();
}

Weight load_weight(Context& ctx, std::string name, int64_t out_features, int64_t in_features,
                   WeightPrecision precision, const RowReader& read_rows) {
  return load_weight_as(ctx, choose_format(ctx, precision, out_features, in_features),
                        std::move(name), out_features, in_features, read_rows);
}

Weight load_weight_as(Context& ctx, WeightFormat format, std::string name, int64_t out_features,
                      int64_t in_features, const RowReader& read_rows) {
  if (format == WeightFormat::kNF4) {
    return load_nf4_weight(ctx, std::move(name), out_features, in_features, read_rows);
  }
  Weight w;
  w.format = format;
  w.out_features = out_features;
  w.in_features = in_features;
  w.name = std::move(name);
  if (w.format == WeightFormat::kF32) {
    load_f32(ctx, w, read_rows);
    return w;
  }
  F16Loader loader(ctx, w);
  if (ctx.kind() != DeviceKind::kPlan) loader.load(read_rows);
  return w;
}

Weight weight_from(const Tensor& data, std::string name) {
  expect_matrix("weight_from", name, data, DType::kF32);
  Weight w;
  w.out_features = data.dim(0);
  w.in_features = data.dim(1);
  w.data = data;
  w.name = std::move(name);
  return w;
}

void weight_rows_to_f32(Context& ctx, const Weight& weight, int64_t row_begin, const Tensor& to) {
  switch (weight.format) {
    case WeightFormat::kF32:
      copy(ctx, weight.data.rows(row_begin, row_begin + to.dim(0)), to);
      break;
    case WeightFormat::kF16:
    case WeightFormat::kF16Blocks:
      f16_rows_to_f32(ctx, weight, row_begin, to);
      break;
    case WeightFormat::kNF4:
      nf4_dequantise_rows(ctx, weight, row_begin, to);
      break;
  }
}

Weight weight_rows(Context& ctx, const Weight& weight, int64_t begin, int64_t end) {
  Weight part = weight;
  part.out_features = end - begin;
  const int64_t bytes_before = begin * weight.in_features * dtype_size(weight.data.dtype());
  const bool aligned = ctx.modelled() == DeviceKind::kCpu || bytes_before % 256 == 0;
  if (weight.format == WeightFormat::kF16Blocks && begin % kF16Panel == 0) {
    part.data = weight.data.flat(f16_blocks_size(begin, weight.in_features),
                                 f16_blocks_size(end - begin, weight.in_features));
    return part;
  }
  if (weight.data.rank() == 2 && aligned) {
    part.data = weight.data.rows(begin, end);
    return part;
  }
  if (weight.format == WeightFormat::kNF4 && nf4_rows(ctx, weight, begin, end, part)) return part;
  part = weight_from(
      ctx.allocate({end - begin, weight.in_features}, DType::kF32, "weights/" + weight.name),
      weight.name);
  copy(ctx, weight_to_f32(ctx, weight).rows(begin, end), part.data);
  return part;
}

Tensor weight_to_f32(Context& ctx, const Weight& weight) {
  if (weight.format == WeightFormat::kF32) return weight.data;
  const Tensor whole = ctx.allocate({weight.out_features, weight.in_features}, DType::kF32,
                                    "weights/" + weight.name);
  for_row_parts(ctx, "weight_to_f32", weight.out_features, weight.in_features * 4,
                [&](int64_t begin, int64_t end) {
                  weight_rows_to_f32(ctx, weight, begin, whole.rows(begin, end));
                });
  return whole;
}

}  // namespace wgrad::ops
