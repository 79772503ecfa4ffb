#include "ops/matmul.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gpu/kernel_text.h"
#include "ops/f16_blocks.h"
#include "ops/gemm_source.h"
#include "ops/linear.h"
#include "ops/matmul_f16.h"
#include "ops/matvec_source.h"
#include "ops/nf4_matrix_source.h"
#include "ops/nf4_matvec_source.h"
#include "ops/tile_source.h"
#include "ops/verify_families.h"
#include "ops/weight.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

constexpr MatmulOp kOps[] = {MatmulOp::kNT, MatmulOp::kNN, MatmulOp::kTN};

std::unique_ptr<Context> software(uint64_t max_binding_size = 0) {
  gpu::DeviceOptions options;
  options.selector = "software";
  options.checked = true;
  options.max_binding_size = max_binding_size;
  return Context::gpu(options, {});
}

Tensor upload(Context& ctx, Shape shape, const std::vector<float>& values) {
  return ctx.make(std::move(shape), DType::kF32, std::span<const float>(values), "test");
}

RowReader rows_of(const std::vector<float>& w, int64_t columns) {
  return [&w, columns](int64_t begin, int64_t end, std::span<float> out) {
    std::copy(w.begin() + begin * columns, w.begin() + end * columns, out.begin());
  };
}

// The device that the f16 path is made for, as a plan sees it.
std::unique_ptr<Context> matrix_plan(uint64_t max_binding_size) {
  gpu::Features features;
  features.shader_f16 = features.subgroups = features.subgroup_matrix_f16 = true;
  features.subgroup_min_size = features.subgroup_max_size = 32;
  gpu::Limits limits;
  limits.max_buffer_size = uint64_t{1} << 40;
  limits.max_binding_size = max_binding_size;
  limits.max_workgroup_memory = 48 << 10;
  Context::Options options;
  options.compute = ComputeType::kF16;
  return Context::plan(DeviceKind::kGpu, limits, features, options);
}

/// Of "40 tokens, 160 -> 136" 160, of load_weight's "1000 x 4104" 4104; 0 where there is no weight.
int64_t weight_columns(const VerifyCase& c) {
  const std::string before = c.kernel == "load_weight" ? " x " : " tokens, ";
  const size_t at = c.what.find(before);
  return at == std::string::npos ? 0 : std::stoll(c.what.substr(at + before.size()));
}

TEST(Matmul, AgreesWhenTensorsExceedABinding) {
  constexpr int64_t kBinding = 64 << 10;
  const auto ctx = software(kBinding);
  std::vector<VerifyCase> cases;
  add_matmul_cases(*ctx, VerifyLevel::kQuick, cases);
  add_linear_cases(*ctx, VerifyLevel::kQuick, cases);
  ASSERT_GT(cases.size(), 100u);
  for (const VerifyCase& c : cases) {
    // 64 rows of a weight are loaded and decoded at a time, which must fit.
    if (weight_columns(c) * 64 * 4 > kBinding) continue;
    const VerifyResult result = run_case(c, *ctx);
    EXPECT_TRUE(result.passed) << c.kernel << " " << c.what << ": " << result.where;
  }
}

TEST(Matmul, GivesTheSameBitsTwice) {
  const auto ctx = software();
  const Tensor a = upload(*ctx, {130, 700}, verify_uniform(130 * 700, 1));
  const Tensor b = upload(*ctx, {24, 700}, verify_uniform(24 * 700, 2));
  const Tensor c = ctx->allocate({130, 24}, DType::kF32, "test");
  matmul(*ctx, MatmulOp::kNT, a, b, c);
  const auto first = ctx->read<float>(c);
  matmul(*ctx, MatmulOp::kNT, a, b, c);
  EXPECT_EQ(first, ctx->read<float>(c));
}

TEST(Matmul, TakesViewsThatBeginAnywhere) {
  const auto ctx = software();
  const std::vector<float> values = verify_uniform(5000, 3);
  const Tensor flat = upload(*ctx, {5000}, values);
  const Tensor out = ctx->allocate_zeroed({2000}, DType::kF32, "test");
  const Tensor a = flat.flat(7, 30 * 20).reshape({30, 20});
  const Tensor b = flat.flat(1001, 25 * 20).reshape({25, 20});
  matmul(*ctx, MatmulOp::kNT, a, b, out.flat(333, 30 * 25).reshape({30, 25}));
  const auto seen = ctx->read<float>(out);
  for (size_t i = 0; i < 30; ++i) {
    for (size_t j = 0; j < 25; ++j) {
      double sum = 0, magnitude = 0;
      for (size_t k = 0; k < 20; ++k) {
        const double x = static_cast<double>(values[7 + i * 20 + k]);
        const double y = static_cast<double>(values[1001 + j * 20 + k]);
        sum += x * y;
        magnitude += std::abs(x * y);
      }
      EXPECT_NEAR(static_cast<double>(seen[333 + i * 25 + j]), sum, 21 * kF32Rounding * magnitude);
    }
  }
  EXPECT_EQ(seen[332], 0.0f);
  EXPECT_EQ(seen[333 + 30 * 25], 0.0f);
}

TEST(Matmul, AnEmptyReductionGivesZeroOrLeavesC) {
  for (const auto& ctx : {Context::cpu({}), software()}) {
    const Tensor a = ctx->allocate({3, 0}, DType::kF32, "test");
    const Tensor b = ctx->allocate({2, 0}, DType::kF32, "test");
    const Tensor c = upload(*ctx, {3, 2}, {1, 2, 3, 4, 5, 6});
    matmul(*ctx, MatmulOp::kNT, a, b, c, {.accumulate = true});
    EXPECT_EQ(ctx->read<float>(c), (std::vector<float>{1, 2, 3, 4, 5, 6}));
    matmul(*ctx, MatmulOp::kNT, a, b, c);
    EXPECT_EQ(ctx->read<float>(c), std::vector<float>(6, 0.0f));
  }
}

TEST(Matmul, RefusesShapesThatDoNotFit) {
  const auto ctx = Context::cpu({});
  const Tensor a = ctx->allocate({3, 4}, DType::kF32, "test");
  const Tensor b = ctx->allocate({5, 6}, DType::kF32, "test");
  const Tensor c = ctx->allocate({3, 5}, DType::kF32, "test");
  try {
    matmul(*ctx, MatmulOp::kNT, a, b, c);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "matmul: f32[3, 4], f32[5, 6] and f32[3, 5]; expected f32 A[M,K], B[N,K], C[M,N]");
  }
}

TEST(Linear, APlanFindsThePeakOfTheRun) {
  const std::vector<float> w = verify_uniform(96 * 160, 4);
  const auto step = [&](Context& ctx) {
    const Weight nf4 = load_weight(ctx, "w", 160, 96, WeightPrecision::kNF4, rows_of(w, 96));
    const Tensor x = ctx.allocate_zeroed({40, 96}, DType::kF32, "x");
    const Tensor y = ctx.allocate_zeroed({40, 160}, DType::kF32, "y");
    const Tensor a = ctx.allocate_zeroed({16, 96}, DType::kF32, "a");
    const Tensor xa = ctx.allocate_zeroed({40, 16}, DType::kF32, "xa");
    linear_forward(ctx, x, nf4, Tensor(), y);
    linear_backward_input(ctx, y, nf4, x, true);
    matmul(ctx, MatmulOp::kNT, x, a, xa);
    bias_backward(ctx, y, ctx.allocate_zeroed({160}, DType::kF32, "bias"));
    return ctx.peak_bytes();
  };
  const auto device = software();
  const auto plan = Context::plan(DeviceKind::kGpu, device->limits(), device->features(), {});
  const int64_t planned = step(*plan);
  EXPECT_EQ(planned, step(*device));
  EXPECT_GT(planned, int64_t{40} * (96 + 160) * 4);
}

TEST(Linear, AWeightBeyondTheDevicesBuffersIsRefusedWithAWayOut) {
  gpu::Limits limits;
  limits.max_buffer_size = 1 << 20;
  limits.max_binding_size = 1 << 20;
  const auto ctx = Context::plan(DeviceKind::kGpu, limits, {}, {});
  try {
    load_weight(*ctx, "lm_head", 4096, 128, WeightPrecision::kF32, nullptr);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "lm_head: [4096, 128] takes 2097152 bytes here; this device holds at most 1048576 in "
              "one buffer; use --method qlora or --dtype f16");
  }
}

TEST(Linear, FormatsFollowTheDevice) {
  const std::vector<float> w(64 * 32, 1.0f);
  const auto cpu = Context::cpu({ComputeType::kF16, 0});
  EXPECT_EQ(load_weight(*cpu, "w", 64, 32, WeightPrecision::kCompute, rows_of(w, 32)).format,
            WeightFormat::kF32);
  const auto matrix = matrix_plan(uint64_t{1} << 30);
  EXPECT_EQ(load_weight(*matrix, "w", 64, 32, WeightPrecision::kCompute, nullptr).format,
            WeightFormat::kF16Blocks);
  EXPECT_EQ(load_weight(*matrix, "w", 64, 32, WeightPrecision::kF32, nullptr).format,
            WeightFormat::kF32);
  const auto halves = software();
  halves->set_compute(ComputeType::kF16);
  ASSERT_FALSE(has_f16_product(*halves));
  EXPECT_EQ(load_weight(*halves, "w", 64, 32, WeightPrecision::kCompute, rows_of(w, 32)).format,
            WeightFormat::kF16);
}

// Runs every branch of the f16 path but the kernels themselves, with parts of all kinds.
TEST(Linear, ThePlanOfTheMatrixPathNeedsBoundedScratch) {
  const auto ctx = matrix_plan(uint64_t{1} << 20);
  const int64_t tokens = 1000, in = 1024, out = 1500;
  const Tensor x = ctx->allocate({tokens, in}, DType::kF32, "x");
  const Tensor y = ctx->allocate({tokens, out}, DType::kF32, "y");
  const Tensor grad_w = ctx->allocate({out, in}, DType::kF32, "grad_w");
  for (WeightPrecision precision : {WeightPrecision::kCompute, WeightPrecision::kNF4}) {
    const Weight w = load_weight(*ctx, "w", out, in, precision, nullptr);
    ctx->trim();
    const int64_t before = ctx->live_bytes();
    ctx->reset_peak();
    linear_forward(*ctx, x, w, Tensor(), y);
    linear_backward_input(*ctx, y, w, x, false);
    EXPECT_EQ(ctx->live_bytes(), before);
    // The pool may hold a quarter more than was ever in use.
    EXPECT_LT(ctx->peak_bytes(), (before + (4 << 20)) * 5 / 4) << "scratch of a few bindings";
  }
  linear_backward_weight(*ctx, y, x, grad_w);
}

TEST(Gemm, EveryKernelFitsTheWorkgroupMemoryOfItsDevices) {
  GemmKernel kernel;
  for (MatmulOp op : kOps) {
    kernel.op = op;
    kernel.ring = true, kernel.bm = 256, kernel.bn = 128, kernel.wm = 64, kernel.wn = 64;
    EXPECT_LE(kernel.workgroup_bytes(), 48 << 10);
    kernel.ring = false, kernel.bm = 128;
    EXPECT_LE(kernel.workgroup_bytes(), 32 << 10);
    kernel.bn = 64, kernel.wn = 32;
    EXPECT_LE(kernel.workgroup_bytes(), 16 << 10);
  }
}

TEST(F16Blocks, EveryElementHasItsOwnPlace) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {33, 40}, {64, 96}}) {
    std::vector<int> hits(static_cast<size_t>(f16_blocks_size(rows, columns)));
    for (int64_t r = 0; r < f16_padded(rows); ++r) {
      for (int64_t c = 0; c < f16_padded(columns); ++c) {
        ++hits.at(static_cast<size_t>(f16_blocks_index(r, c, columns)));
      }
    }
    EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), 0), static_cast<int>(hits.size()));
    EXPECT_EQ(std::count(hits.begin(), hits.end(), 1), static_cast<int64_t>(hits.size()));
  }
}

// The compiler's verdict on text that this machine's device cannot run.
class Tint : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v tint > /dev/null 2>&1") != 0) {
      GTEST_SKIP() << "the tint command is not on the PATH";
    }
    folder_ = std::filesystem::temp_directory_path() / ("wgrad-tint-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  void expect_valid(const std::string& text, const std::string& what) {
    const auto file = folder_ / "kernel.wgsl", messages = folder_ / "messages";
    std::ofstream(file) << text;
    const std::string command =
        "tint --format wgsl " + file.string() + " > /dev/null 2> " + messages.string();
    if (std::system(command.c_str()) == 0) return;
    std::ifstream in(messages);
    ADD_FAILURE() << what << ": " << std::string(std::istreambuf_iterator<char>(in), {});
  }

  std::filesystem::path folder_;
};

TEST_F(Tint, AcceptsEverySubgroupMatrixKernel) {
  struct Block {
    int bm, bn, wm, wn;
    bool ring;
  };
  using ScaleB = GemmKernel::ScaleB;
  for (MatmulOp op : kOps) {
    for (const Block& b : {Block{256, 128, 64, 64, true}, Block{128, 128, 64, 64, false},
                           Block{128, 64, 64, 32, false}, Block{64, 64, 32, 32, false}}) {
      GemmKernel k{op, b.bm, b.bn, b.wm, b.wn, b.ring, 4096, 1024, op == MatmulOp::kTN ? 0 : 128};
      expect_valid(gemm_source(k), "plain");
      k.clamp_a = k.clamp_b = k.bias = true;
      k.b_scale = ScaleB::kPerColumn;
      expect_valid(gemm_source(k), "clamped, scaled by column, with bias");
      k.a_scale_per_row = k.store_vec4 = false;
      k.b_scale = ScaleB::kOne;
      expect_valid(gemm_source(k), "one scale, single stores");
    }
  }
}

TEST_F(Tint, AcceptsEveryTileKernel) {
  struct Tile {
    int bm, bn, size;
  };
  for (MatmulOp op : kOps) {
    for (const Tile& t : {Tile{128, 128, 8}, Tile{64, 64, 4}, Tile{128, 16, 4}, Tile{16, 128, 4}}) {
      for (TileAccess access : {TileAccess::kVec4, TileAccess::kHalf4, TileAccess::kScalar}) {
        TileKernel k{op, t.bm, t.bn, t.size, t.size, 1, access};
        expect_valid(tile_source(k), "whole tiles");
        k.guard = k.tail_k = true;
        k.unroll = 4;
        expect_valid(tile_source(k), "guarded");
      }
    }
  }
}

TEST_F(Tint, AcceptsEveryMatrixKernelForNf4) {
  for (MatmulOp op : {MatmulOp::kNT, MatmulOp::kNN}) {
    for (int row_blocks : {1, 2, 3, 4}) {
      expect_valid(gpu::kernel_text(nf4_matrix_kernel({op, row_blocks, 2})), "nf4_matrix");
    }
  }
}

TEST_F(Tint, AcceptsEveryMatvecKernel) {
  for (MatvecWeight weight :
       {MatvecWeight::kF32, MatvecWeight::kF16, MatvecWeight::kF16Blocks, MatvecWeight::kNF4}) {
    for (int rows : {1, 8}) {
      expect_valid(gpu::kernel_text(matvec_kernel_spec({.weight = weight, .rows = rows})),
                   "matvec");
    }
  }
  for (MatvecWeight weight : {MatvecWeight::kF32, MatvecWeight::kF16, MatvecWeight::kF16Blocks}) {
    MatvecKernel kernel{.weight = weight, .members = 3, .bias = true, .norm = true};
    kernel.loads_ahead = 4;
    kernel.invocations = 1024;
    if (weight == MatvecWeight::kF16Blocks) kernel.thread_rows = 2;
    expect_valid(gpu::kernel_text(matvec_kernel_spec(kernel)), "matvec_group");
    for (Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
      kernel.members = 2;
      kernel.gated = true;
      kernel.activation = activation;
      expect_valid(gpu::kernel_text(matvec_kernel_spec(kernel)), "matvec_gated");
    }
  }
  for (int rows : {1, 2, 3, 4}) {
    for (int teams : {1, 8}) {
      expect_valid(gpu::kernel_text(nf4_matvec_kernel({rows, teams, 32})), "nf4_matvec");
    }
  }
}

}  // namespace
}  // namespace wgrad::ops
