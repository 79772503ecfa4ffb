#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "cpu/nf4.h"
#include "ops/linear.h"
#include "ops/matmul_f16.h"
#include "ops/nf4.h"
#include "ops/verify_families.h"
#include "ops/verify_nf4.h"
#include "ops/verify_product.h"
#include "ops/weight.h"

namespace wgrad::ops {

namespace {

struct LinearCase {
  WeightFormat format;
  int64_t tokens, in, out;
  bool backward = false;
  bool accumulate = false;
  ComputeType compute = ComputeType::kF32;
};

const char* format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return "f32";
    case WeightFormat::kF16:
      return "f16";
    case WeightFormat::kF16Blocks:
      return "f16 blocks";
    case WeightFormat::kNF4:
      return "nf4";
  }
  return "?";
}

std::string describe(const LinearCase& c) {
  return fmt::format("{} weight, {} tokens, {} -> {}{}", format_name(c.format), c.tokens, c.in,
                     c.out, c.accumulate ? ", adding" : "");
}

Tensor upload(Context& ctx, Shape shape, const std::vector<float>& values) {
  return ctx.make(std::move(shape), DType::kF32, std::span<const float>(values), "verify");
}

Weight load(Context& ctx, const LinearCase& c, std::span<const float> w) {
  return load_weight_as(ctx, c.format, "weight", c.out, c.in,
                        [&](int64_t begin, int64_t end, std::span<float> rows) {
                          std::copy(w.begin() + begin * c.in, w.begin() + end * c.in, rows.begin());
                        });
}

double largest_of(std::span<const float> values) {
  double largest = 0.0;
  for (float v : values) largest = std::max(largest, std::abs(static_cast<double>(v)));
  return largest;
}

/// What an NF4 weight's codes become where few rows multiply them: f16 values, times x in f32
/// (kHalves) or, times absmax in f16, halves of a matrix (kMatrices).
enum class FewRows : uint8_t { kNone, kHalves, kMatrices };
FewRows few_nf4_rows(const Context& ctx, const LinearCase& c) {
  if (c.format != WeightFormat::kNF4 || c.compute != ComputeType::kF16 ||
      ctx.modelled() != DeviceKind::kGpu || c.in % cpu::kNf4Block != 0) {
    return FewRows::kNone;
  }
  if (!c.backward && c.tokens <= 4) return FewRows::kHalves;
  return has_f16_product(ctx) && c.tokens <= 64 ? FewRows::kMatrices : FewRows::kNone;
}

/// Whether x stays in f32: as many rows as a product in memory order of the weight takes.
bool multiplies_vectors(const Context& ctx, const LinearCase& c) {
  return !c.backward && c.tokens <= 8 && c.in % 8 == 0 &&
         few_nf4_rows(ctx, c) != FewRows::kMatrices;
}

/// How far the weight that is multiplied may be from the one given.
VerifyOperand weight_operand(const Context& ctx, const LinearCase& c, const Weight& weight,
                             const std::vector<float>& w) {
  VerifyOperand operand{w, 0, {}};
  const bool matrix =
      has_f16_product(ctx) && c.compute == ComputeType::kF16 && !multiplies_vectors(ctx, c);
  if (c.format == WeightFormat::kNF4) {
    operand.values = through_nf4(w);
    // Decoding rounds twice where the device fuses the absmax's product and sum.
    operand.relative = 4 * kF32Rounding;
    operand.absolute = {2 * kF32Rounding * largest_of(operand.values)};
    if (few_nf4_rows(ctx, c) != FewRows::kNone) operand.relative += 0x1p-11;
  }
  if (c.format == WeightFormat::kF16 || c.format == WeightFormat::kF16Blocks) {
    operand.relative = 0x1p-10;
    operand.absolute = {0x1p-14 * static_cast<double>(weight.scale)};
  } else if (matrix && c.format == WeightFormat::kNF4 && c.in % 8 == 0) {
    operand.relative += 0x1p-10;
    operand.absolute[0] += 0x1p-14 * static_cast<double>(weight.scale);
    if (few_nf4_rows(ctx, c) == FewRows::kMatrices) {  // absmax is rounded as well
      operand.relative += 0x1p-10;
      operand.absolute[0] += 0x1p-14 * static_cast<double>(weight.scale);
    }
  }
  return operand;
}

VerifyResult run_linear(Context& ctx, const LinearCase& c) {
  VerifyProduct p;
  p.op = c.backward ? MatmulOp::kNN : MatmulOp::kNT;
  p.m = c.tokens;
  p.n = c.backward ? c.in : c.out;
  p.k = c.backward ? c.out : c.in;
  const std::vector<float> w = verify_uniform(static_cast<size_t>(c.in * c.out), 11, 0.05f);
  p.a.values = verify_uniform(static_cast<size_t>(p.m * p.k), 12);
  if (!c.backward) p.bias = verify_uniform(static_cast<size_t>(c.out), 13);
  if (c.accumulate) p.c = verify_uniform(static_cast<size_t>(p.m * p.n), 14);

  const ComputeType before = ctx.compute();
  ctx.set_compute(c.compute);
  const Weight weight = load(ctx, c, w);
  const Tensor x = upload(ctx, {p.m, p.k}, p.a.values);
  const Tensor y =
      p.c.empty() ? ctx.allocate({p.m, p.n}, DType::kF32, "verify") : upload(ctx, {p.m, p.n}, p.c);
  if (c.backward) {
    linear_backward_input(ctx, x, weight, y, c.accumulate);
  } else {
    linear_forward(ctx, x, weight, upload(ctx, {c.out}, p.bias), y, c.accumulate);
  }
  const std::vector<float> seen = ctx.read<float>(y);
  ctx.set_compute(before);

  const bool few_rows = multiplies_vectors(ctx, c);
  const bool blocks = c.format == WeightFormat::kF16Blocks ||
                      (c.format == WeightFormat::kNF4 && c.in % 8 == 0 &&
                       c.compute == ComputeType::kF16 && has_f16_product(ctx));
  p.b = weight_operand(ctx, c, weight, w);
  if (blocks && !few_rows) {
    round_operand_to_f16(p.a, p.k, true);
    p.per_term = 0x1p-22;
  }
  VerifyCheck check(c.backward ? "linear_backward_input" : "linear_forward", describe(c),
                    ctx.modelled() == DeviceKind::kCpu ? "cpu"
                    : blocks && !few_rows              ? "matrix"
                                                       : "core");
  p.compare(check, c.backward ? "grad_x" : "y", seen);
  return check.result();
}

/// Layers that take one input, packed once, give the bits that each gives alone.
VerifyResult run_shared_input(Context& ctx, WeightFormat format, int64_t tokens, int64_t in) {
  const ComputeType before = ctx.compute();
  ctx.set_compute(format == WeightFormat::kF32 ? ComputeType::kF32 : ComputeType::kF16);
  const Tensor x = upload(ctx, {tokens, in}, verify_uniform(static_cast<size_t>(tokens * in), 71));
  LinearInput shared(x);
  VerifyCheck check(
      "linear_forward",
      fmt::format("{} weights on one input, {} tokens, {} ->", format_name(format), tokens, in),
      ctx.modelled() == DeviceKind::kCpu ? "cpu" : "shared");
  for (int64_t out : {136, 40, 33}) {
    const LinearCase c{format, tokens, in, out};
    const Weight weight = load(ctx, c, verify_uniform(static_cast<size_t>(in * out), 72, 0.05f));
    const Tensor bias = upload(ctx, {out}, verify_uniform(static_cast<size_t>(out), 73));
    const Tensor alone = ctx.allocate({tokens, out}, DType::kF32, "verify");
    const Tensor together = ctx.allocate({tokens, out}, DType::kF32, "verify");
    linear_forward(ctx, x, weight, bias, alone);
    linear_forward(ctx, shared, weight, bias, together);
    check.require(ctx.read<float>(together) == ctx.read<float>(alone),
                  "a shared input gives the same bits");
  }
  ctx.set_compute(before);
  return check.result();
}

/// y = 2 (x A^T) B^T and all its gradients, each product with the operands that the device made.
VerifyResult run_lora(Context& ctx, int64_t tokens, int64_t in, int64_t out, int64_t rank) {
  constexpr float kScale = 2.0f;
  const auto random = [](int64_t rows, int64_t columns, uint64_t seed) {
    return verify_uniform(static_cast<size_t>(rows * columns), seed);
  };
  const auto x = random(tokens, in, 21), a = random(rank, in, 22), b = random(out, rank, 23),
             y0 = random(tokens, out, 24), grad_y = random(tokens, out, 25),
             grad_a0 = random(rank, in, 26), grad_b0 = random(out, rank, 27),
             grad_x0 = random(tokens, in, 28);
  const Tensor tx = upload(ctx, {tokens, in}, x), ta = upload(ctx, {rank, in}, a),
               tb = upload(ctx, {out, rank}, b), ty = upload(ctx, {tokens, out}, y0),
               tgy = upload(ctx, {tokens, out}, grad_y), tga = upload(ctx, {rank, in}, grad_a0),
               tgb = upload(ctx, {out, rank}, grad_b0), tgx = upload(ctx, {tokens, in}, grad_x0);
  const Tensor xa = ctx.allocate({tokens, rank}, DType::kF32, "verify");
  const Tensor grad_xa = ctx.allocate({tokens, rank}, DType::kF32, "verify");
  lora_forward(ctx, tx, ta, tb, kScale, xa, ty);
  lora_backward(ctx, tx, xa, ta, tb, kScale, tgy, grad_xa, tga, tgb, tgx);
  const auto seen_xa = ctx.read<float>(xa), seen_grad_xa = ctx.read<float>(grad_xa);

  VerifyCheck check("lora", fmt::format("{} tokens, {} -> {} -> {}", tokens, in, rank, out),
                    ctx.modelled() == DeviceKind::kCpu ? "cpu" : "core");
  const auto compare = [&](std::string_view name, MatmulOp op, int64_t m, int64_t n, int64_t k,
                           const std::vector<float>& left, const std::vector<float>& right,
                           float alpha, const std::vector<float>& base,
                           const std::vector<float>& seen) {
    VerifyProduct p;
    p.op = op;
    p.m = m, p.n = n, p.k = k;
    p.a.values = left, p.b.values = right, p.c = base;
    p.alpha = alpha;
    p.compare(check, name, seen);
  };
  compare("xa", MatmulOp::kNT, tokens, rank, in, x, a, 1.0f, {}, seen_xa);
  compare("y", MatmulOp::kNT, tokens, out, rank, seen_xa, b, kScale, y0, ctx.read<float>(ty));
  compare("grad_b", MatmulOp::kTN, out, rank, tokens, grad_y, seen_xa, kScale, grad_b0,
          ctx.read<float>(tgb));
  compare("grad_xa", MatmulOp::kNN, tokens, rank, out, grad_y, b, kScale, {}, seen_grad_xa);
  compare("grad_a", MatmulOp::kTN, rank, in, tokens, seen_grad_xa, x, 1.0f, grad_a0,
          ctx.read<float>(tga));
  compare("grad_x", MatmulOp::kNN, tokens, in, rank, seen_grad_xa, a, 1.0f, grad_x0,
          ctx.read<float>(tgx));
  return check.result();
}

VerifyResult run_weight_gradient(Context& ctx, int64_t tokens, int64_t in, int64_t out,
                                 ComputeType compute) {
  VerifyProduct p;
  p.op = MatmulOp::kTN;
  p.m = out, p.n = in, p.k = tokens;
  p.a.values = verify_uniform(static_cast<size_t>(tokens * out), 31, 1e-8f);
  p.b.values = verify_uniform(static_cast<size_t>(tokens * in), 32, 100.0f);
  p.c = verify_uniform(static_cast<size_t>(out * in), 33, 1e-6f);
  const Tensor grad_w = upload(ctx, {out, in}, p.c);
  const ComputeType before = ctx.compute();
  ctx.set_compute(compute);
  linear_backward_weight(ctx, upload(ctx, {tokens, out}, p.a.values),
                         upload(ctx, {tokens, in}, p.b.values), grad_w);
  ctx.set_compute(before);
  const bool matrix = compute == ComputeType::kF16 && has_f16_product(ctx);
  if (matrix) {
    round_operand_to_f16(p.a, out, false);
    round_operand_to_f16(p.b, in, false);
    p.per_term = 0x1p-22;
  }
  VerifyCheck check("linear_backward_weight", fmt::format("{} tokens, {} -> {}", tokens, in, out),
                    ctx.modelled() == DeviceKind::kCpu ? "cpu"
                    : matrix                           ? "matrix"
                                                       : "core");
  p.compare(check, "grad_w", ctx.read<float>(grad_w));
  return check.result();
}

VerifyResult run_bias(Context& ctx, int64_t rows, int64_t n) {
  const auto grad_y = verify_decades(static_cast<size_t>(rows * n), 41);
  const auto start = verify_uniform(static_cast<size_t>(n), 42);
  const Tensor grad_bias = upload(ctx, {n}, start);
  bias_backward(ctx, upload(ctx, {rows, n}, grad_y), grad_bias);
  std::vector<double> expected(static_cast<size_t>(n)), bounds(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) {
    double sum = static_cast<double>(start[static_cast<size_t>(j)]), magnitude = std::abs(sum);
    for (int64_t r = 0; r < rows; ++r) {
      const double v = static_cast<double>(grad_y[static_cast<size_t>(r * n + j)]);
      sum += v;
      magnitude += std::abs(v);
    }
    expected[static_cast<size_t>(j)] = sum;
    bounds[static_cast<size_t>(j)] = static_cast<double>(rows + 1) * kF32Rounding * magnitude;
  }
  VerifyCheck check("bias_backward", fmt::format("{} x {}, 1e-5..1e5", rows, n), "core");
  check.compare("grad_bias", ctx.read<float>(grad_bias), expected,
                [&](size_t i) { return bounds[i]; });
  return check.result();
}

VerifyResult run_round_trip(Context& ctx, WeightFormat format, int64_t out, int64_t in) {
  const LinearCase c{format, 0, in, out};
  // Later rows are a thousand times larger: the loader lowers its power of two on the way.
  auto w = verify_uniform(static_cast<size_t>(in * out), 61, 1e-3f);
  for (size_t i = w.size() * 3 / 4; i < w.size(); ++i) w[i] *= 1000.0f;
  const Weight weight = load(ctx, c, w);
  const auto seen = ctx.read<float>(weight_to_f32(ctx, weight));
  const double absolute = 0x1p-14 * static_cast<double>(weight.scale);
  VerifyCheck check("load_weight", fmt::format("{}, {} x {}", format_name(format), out, in),
                    "core");
  check.compare("w", seen, to_double(w), [&](size_t i) {
    return 2 * 0x1p-10 * std::abs(static_cast<double>(w[i])) + absolute;
  });
  check.require(std::ldexp(1.0f, std::ilogb(weight.scale)) == weight.scale,
                "the factor is a power of two");
  return check.result();
}

bool exists_here(const Context& ctx, WeightFormat format) {
  if (format == WeightFormat::kF32 || format == WeightFormat::kNF4) return true;
  if (ctx.modelled() != DeviceKind::kGpu) return false;
  return format == WeightFormat::kF16 || has_f16_product(ctx);
}

}  // namespace

void add_linear_cases(const Context& ctx, VerifyLevel level, std::vector<VerifyCase>& cases) {
  struct Size {
    int64_t tokens, in, out;
  };
  std::vector<Size> sizes = {{1, 96, 160}, {3, 64, 40},    {8, 128, 33},
                             {9, 96, 72},  {40, 160, 136}, {33, 44, 31}};
  if (level == VerifyLevel::kFull) {
    sizes.insert(sizes.end(),
                 {{130, 1024, 3000}, {513, 4096, 1536}, {2100, 1536, 1024}, {5, 4096, 4096}});
  }
  for (WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kF16Blocks, WeightFormat::kNF4}) {
    if (!exists_here(ctx, format)) continue;
    std::vector<Size> of_format = sizes;
    // Rows that are whole blocks: one to eight teams of invocations a row, and one to four blocks
    // of 16 rows of x, both with partial tiles and more than one round or part.
    if (format == WeightFormat::kNF4) {
      of_format.insert(of_format.end(), {{1, 64, 5},
                                         {4, 192, 33},
                                         {2, 2112, 70},
                                         {1, 4160, 300},
                                         {1, 8192, 9},
                                         {16, 320, 70},
                                         {33, 576, 100},
                                         {64, 2112, 40}});
    }
    for (const Size& s : of_format) {
      if (format == WeightFormat::kF16 && (s.in % 8 != 0 || s.out % 4 != 0)) continue;
      for (int variant = 0; variant < 4; ++variant) {
        LinearCase c{format, s.tokens, s.in, s.out, (variant & 1) != 0, (variant & 2) != 0};
        if (format == WeightFormat::kF16Blocks) c.compute = ComputeType::kF16;
        cases.push_back({c.backward ? "linear_backward_input" : "linear_forward", describe(c),
                         [c](Context& ctx) { return run_linear(ctx, c); }});
        if (format != WeightFormat::kNF4 || ctx.modelled() != DeviceKind::kGpu) continue;
        c.compute = ComputeType::kF16;
        cases.push_back({c.backward ? "linear_backward_input" : "linear_forward", describe(c),
                         [c](Context& ctx) { return run_linear(ctx, c); }});
      }
    }
  }
  for (WeightFormat format : {WeightFormat::kF32, WeightFormat::kF16Blocks, WeightFormat::kNF4}) {
    if (!exists_here(ctx, format)) continue;
    for (int64_t tokens : {1, 33, 200}) {
      cases.push_back({"linear_forward",
                       fmt::format("{}, shared input, {} tokens", format_name(format), tokens),
                       [=](Context& c) { return run_shared_input(c, format, tokens, 96); }});
    }
  }
  // The last two fill the larger workgroups.
  std::vector<Size> lora_sizes = {{1, 33, 65},   {70, 96, 129},  {37, 260, 132},
                                  {600, 64, 48}, {4100, 20, 36}, {8195, 36, 20}};
  if (level == VerifyLevel::kFull) lora_sizes.push_back({2048, 4096, 1024});
  for (const Size& s : lora_sizes) {
    for (int64_t rank : {8, 16, 32, 33}) {
      cases.push_back(
          {"lora", fmt::format("{} tokens, {} -> {} -> {}", s.tokens, s.in, rank, s.out),
           [s, rank](Context& ctx) { return run_lora(ctx, s.tokens, s.in, s.out, rank); }});
    }
  }
  for (const Size& s : {Size{1, 1, 1}, Size{70, 65, 33}, Size{520, 96, 40}}) {
    for (ComputeType compute : {ComputeType::kF32, ComputeType::kF16}) {
      cases.push_back({"linear_backward_weight",
                       fmt::format("{} tokens, {} -> {}", s.tokens, s.in, s.out),
                       [s, compute](Context& ctx) {
                         return run_weight_gradient(ctx, s.tokens, s.in, s.out, compute);
                       }});
    }
    cases.push_back({"bias_backward", fmt::format("{} x {}", s.tokens, s.in),
                     [s](Context& ctx) { return run_bias(ctx, s.tokens, s.in); }});
  }
  if (ctx.modelled() != DeviceKind::kGpu) return;
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{3, 40}, {300, 96}, {1000, 4104}}) {
    for (WeightFormat format : {WeightFormat::kF16, WeightFormat::kF16Blocks}) {
      cases.push_back({"load_weight",
                       fmt::format("{}, {} x {}", format_name(format), rows, columns),
                       [format, rows = rows, columns = columns](Context& c) {
                         return run_round_trip(c, format, rows, columns);
                       }});
    }
  }
}

}  // namespace wgrad::ops
