#include <fmt/format.h>

#include <cmath>
#include <string>

#include "ops/f16_blocks.h"
#include "ops/f16_operand.h"
#include "ops/matmul.h"
#include "ops/matmul_f16.h"
#include "ops/verify_families.h"
#include "ops/verify_product.h"

namespace wgrad::ops {

namespace {

struct Shape3 {
  int64_t m, n, k;
};

constexpr MatmulOp kOps[] = {MatmulOp::kNT, MatmulOp::kNN, MatmulOp::kTN};

const char* op_name(MatmulOp op) {
  return op == MatmulOp::kNT ? "NT" : op == MatmulOp::kNN ? "NN" : "TN";
}

Shape a_shape(MatmulOp op, const Shape3& s) {
  return op == MatmulOp::kTN ? Shape{s.k, s.m} : Shape{s.m, s.k};
}
Shape b_shape(MatmulOp op, const Shape3& s) {
  return op == MatmulOp::kNT ? Shape{s.n, s.k} : Shape{s.k, s.n};
}

/// Multiplies row i by 10^-30 .. 10^30, a different power for neighbours.
void spread_rows(std::vector<float>& values, int64_t columns, double low, double high) {
  const size_t rows = values.size() / static_cast<size_t>(columns);
  for (size_t r = 0; r < rows; ++r) {
    const double power = low + (high - low) * static_cast<double>(r * 7 % 11) / 10.0;
    for (size_t i = 0; i < static_cast<size_t>(columns); ++i) {
      float& v = values[r * static_cast<size_t>(columns) + i];
      v = static_cast<float>(static_cast<double>(v) * std::pow(10.0, power));
    }
  }
}

struct MatmulCase {
  MatmulOp op;
  Shape3 shape;
  bool f16 = false;
  bool accumulate = false;
  bool wide = false;  ///< rows of very different size, values over decades
};

VerifyProduct make_product(const MatmulCase& c) {
  VerifyProduct p;
  p.op = c.op;
  p.m = c.shape.m, p.n = c.shape.n, p.k = c.shape.k;
  const auto size = [](int64_t x, int64_t y) { return static_cast<size_t>(x * y); };
  if (c.wide && !c.f16) {
    p.a.values = verify_decades(size(p.m, p.k), 1);
    p.b.values = verify_decades(size(p.n, p.k), 2);
  } else {
    p.a.values = verify_uniform(size(p.m, p.k), 1);
    p.b.values = verify_uniform(size(p.n, p.k), 2);
  }
  if (c.wide && c.f16) {
    // Rows that are summed over must share a factor; others may each have their own.
    if (c.op == MatmulOp::kTN) {
      for (float& v : p.a.values) v *= 1e-30f;
      for (float& v : p.b.values) v *= 1e30f;
    } else {
      spread_rows(p.a.values, p.k, -28, 28);
      if (c.op == MatmulOp::kNT) spread_rows(p.b.values, p.k, -3, 3);
    }
  }
  if (c.accumulate) {
    p.alpha = -0.75f;
    p.c = verify_uniform(size(p.m, p.n), 3);
  }
  return p;
}

VerifyResult run_matmul(Context& ctx, const MatmulCase& c) {
  VerifyProduct p = make_product(c);
  const bool matrix = c.f16 && has_f16_product(ctx);
  const Tensor a =
      ctx.make(a_shape(c.op, c.shape), DType::kF32, std::span<const float>(p.a.values), "verify/a");
  const Tensor b =
      ctx.make(b_shape(c.op, c.shape), DType::kF32, std::span<const float>(p.b.values), "verify/b");
  const Tensor out =
      p.c.empty() ? ctx.allocate({p.m, p.n}, DType::kF32, "verify/c")
                  : ctx.make({p.m, p.n}, DType::kF32, std::span<const float>(p.c), "verify/c");
  const MatmulOptions options{.alpha = p.alpha, .accumulate = c.accumulate};
  if (c.f16) {
    matmul_f16(ctx, c.op, a, b, out, options);
  } else {
    matmul(ctx, c.op, a, b, out, options);
  }
  if (matrix) {
    round_operand_to_f16(p.a, a.dim(1), c.op != MatmulOp::kTN);
    round_operand_to_f16(p.b, b.dim(1), c.op == MatmulOp::kNT);
    p.per_term = 0x1p-22;
  }
  VerifyCheck check(c.f16 ? "matmul_f16" : "matmul",
                    fmt::format("{} {} x {} x {}{}{}", op_name(c.op), p.m, p.n, p.k,
                                c.accumulate ? ", adding" : "", c.wide ? ", wide values" : ""),
                    ctx.modelled() == DeviceKind::kCpu ? "cpu"
                    : matrix                           ? "matrix"
                                                       : "core");
  p.compare(check, "c", ctx.read<float>(out));
  return check.result();
}

void add(std::vector<VerifyCase>& cases, const MatmulCase& c) {
  cases.push_back({c.f16 ? "matmul_f16" : "matmul",
                   fmt::format("{} {} x {} x {}", op_name(c.op), c.shape.m, c.shape.n, c.shape.k),
                   [c](Context& ctx) { return run_matmul(ctx, c); }});
}

/// Packed rows, unpacked on the host by the layout's definition.
VerifyResult run_pack(Context& ctx, int64_t rows, int64_t columns) {
  std::vector<float> x = verify_uniform(static_cast<size_t>(rows * columns), 4);
  spread_rows(x, columns, -30, 30);
  const Tensor t = ctx.make({rows, columns}, DType::kF32, std::span<const float>(x), "verify/x");
  const F16Operand packed = pack_f16_rows(ctx, t, rows, columns);
  const Tensor written = packed.blocks.flat(0, f16_blocks_size(rows, columns));
  const auto halves = ctx.read<uint16_t>(written);
  const auto scales = ctx.read<float>(packed.scales);

  VerifyCheck check("pack_f16", fmt::format("{} x {}, 1e-30..1e30", rows, columns), "core");
  std::vector<float> seen;
  std::vector<double> expected, bounds;
  bool zeros = true, powers = true;
  for (int64_t r = 0; r < f16_padded(rows); ++r) {
    double largest = 0.0;
    for (int64_t j = 0; r < rows && j < columns; ++j) {
      largest =
          std::max(largest, std::abs(static_cast<double>(x[static_cast<size_t>(r * columns + j)])));
    }
    for (int64_t j = 0; j < f16_padded(columns); ++j) {
      const uint16_t half = halves[static_cast<size_t>(f16_blocks_index(r, j, columns))];
      if (r >= rows || j >= columns) {
        zeros = zeros && half == 0;
        continue;
      }
      const double scale = static_cast<double>(scales[static_cast<size_t>(r)]);
      const double given = static_cast<double>(x[static_cast<size_t>(r * columns + j)]);
      powers = powers && std::ldexp(1.0, std::ilogb(scale)) == scale;
      seen.push_back(static_cast<float>(half_value(half)));
      expected.push_back(given / scale);
      bounds.push_back(0x1p-10 * std::abs(given / scale) + largest / scale * 0x1p-28);
    }
  }
  check.compare("blocks", seen, expected, [&](size_t i) { return bounds[i]; });
  check.require(zeros, "padding is zero");
  check.require(powers, "every factor is a power of two");
  return check.result();
}

}  // namespace

void add_matmul_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases) {
  const bool gpu = ctx.modelled() == DeviceKind::kGpu;
  // Single elements and odd sizes; few rows (which read B once); for each tile and way of access
  // one output that needs it: thin, with long reductions (cut in parts), and large.
  std::vector<Shape3> shapes = {{1, 1, 1},     {1, 33, 31},    {31, 1, 33},   {33, 65, 1},
                                {65, 31, 129}, {97, 101, 103}, {129, 97, 33}, {64, 64, 64}};
  std::vector<MatmulCase> tiled = {
      {MatmulOp::kNT, {1, 40, 520}},   {MatmulOp::kNT, {8, 65, 1000}},
      {MatmulOp::kNT, {40, 16, 700}},  {MatmulOp::kTN, {16, 132, 700}},
      {MatmulOp::kNN, {130, 24, 516}}, {MatmulOp::kTN, {68, 132, 520}},
      {MatmulOp::kNN, {66, 65, 515}},  {MatmulOp::kNN, {1024, 1000, 20}}};
  if (level == VerifyLevel::kFull) {
    for (const Shape3& s : {Shape3{1, 4096, 4096},
                            {7, 1000, 1030},
                            {512, 4096, 16},
                            {16, 4096, 2048},
                            {2048, 16, 4096},
                            {2048, 30, 1030},
                            {30, 2048, 1030},
                            {64, 64, 4096},
                            {63, 61, 4097},
                            {1031, 1029, 1027},
                            {1032, 1028, 1027},
                            {70000, 33, 17},
                            {4096, 4096, 512}}) {
      shapes.push_back(s);
    }
  }
  for (const Shape3& s : shapes) {
    for (MatmulOp op : kOps) tiled.push_back({op, s});
  }
  for (MatmulCase c : tiled) {
    add(cases, c);
    c.accumulate = c.wide = true;
    add(cases, c);
  }
  if (!gpu) return;
  // Without matrix units matmul_f16 is matmul.
  std::vector<Shape3> f16_shapes = {{33, 65, 31}};
  if (has_f16_product(ctx))
    f16_shapes = {{1, 1, 1},       {33, 65, 31},    {64, 64, 64},   {100, 130, 97},
                  {128, 256, 160}, {257, 129, 100}, {300, 520, 64}, {40, 70, 2100}};
  if (level == VerifyLevel::kFull && has_f16_product(ctx)) {
    // The largest fill 128x128 and 256x128 blocks; long reductions are cut into parts.
    f16_shapes.insert(f16_shapes.end(), {{16, 4096, 2048},
                                         {512, 1000, 4096},
                                         {384, 8192, 64},
                                         {390, 8190, 63},
                                         {2304, 1408, 96},
                                         {2300, 1403, 97},
                                         {2304, 1408, 2048},
                                         {64, 128, 16384},
                                         {130, 60, 5000},
                                         {1024, 1024, 16416}});
  }
  for (const Shape3& s : f16_shapes) {
    for (MatmulOp op : kOps) {
      add(cases, {.op = op, .shape = s, .f16 = true});
      add(cases, {.op = op, .shape = s, .f16 = true, .accumulate = true});
      if (s.m < 1000) add(cases, {.op = op, .shape = s, .f16 = true, .wide = true});
    }
  }
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1},
                                      {33, 31},
                                      {47, 100},
                                      {64, 96},
                                      {70, 52},
                                      {35, 1030},
                                      {18, 2048},
                                      {5, 9000},
                                      {3, 16420},
                                      {2, 20003}}) {
    // 64 rows of an operand must fit a binding; a device that takes less refuses the product.
    if (gpu && 64 * 4 * static_cast<uint64_t>(columns) > ctx.limits().max_binding_size) continue;
    cases.push_back(
        {"pack_f16", fmt::format("{} x {}", rows, columns),
         [rows = rows, columns = columns](Context& c) { return run_pack(c, rows, columns); }});
  }
}

}  // namespace wgrad::ops
