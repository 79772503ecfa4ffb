#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/launch.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/optimizer.h"
#include "ops/rope.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

using testing::HasSubstr;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class ShapeChecks : public testing::Test {
 protected:
  Tensor f32(Shape shape) { return ctx_->allocate_zeroed(std::move(shape), DType::kF32, "test"); }
  Tensor u32(Shape shape) { return ctx_->allocate_zeroed(std::move(shape), DType::kU32, "test"); }
  Context& ctx() { return *ctx_; }

  std::unique_ptr<Context> ctx_ = Context::cpu({});
};

TEST_F(ShapeChecks, NameTheFunctionWhatWasSeenAndWhatWasExpected) {
  const std::string text = error_of([&] {
    rms_norm_forward(ctx(), f32({3, 8}), f32({7}), f32({3, 8}), f32({3}), 1e-5f);
  });
  EXPECT_THAT(text, HasSubstr("rms_norm_forward"));
  EXPECT_THAT(text, HasSubstr("weight is f32[7]"));
  EXPECT_THAT(text, HasSubstr("expected 8 f32"));
}

TEST_F(ShapeChecks, RefuseOtherShapesAndTypes) {
  EXPECT_THAT(error_of([&] {
                rms_norm_backward(ctx(), f32({2, 4}), f32({4}), f32({2}), f32({2, 4}), f32({4, 2}),
                                  false, Tensor());
              }),
              HasSubstr("grad_x is f32[4, 2]; expected f32[2, 4]"));
  EXPECT_THAT(
      error_of([&] { gated_forward(ctx(), Activation::kSilu, f32({4}), f32({4}), Tensor()); }),
      HasSubstr("y is empty"));
  EXPECT_THAT(error_of([&] { add(ctx(), u32({4}), f32({4})); }), HasSubstr("x is u32[4]"));
  EXPECT_THAT(error_of([&] {
                cross_entropy_forward(ctx(), f32({2, 5}), u32({2}), f32({2}), f32({2}));
              }),
              HasSubstr("labels is u32[2]; expected 2 i32"));
  EXPECT_THAT(error_of([&] {
                rope_apply(ctx(), f32({2, 12}), u32({2}), f32({9, 2, 2}), 5, 4,
                           RopePairing::kHalfSplit, false);
              }),
              HasSubstr("head_dim 5"));
  EXPECT_THAT(error_of([&] { dropout(ctx(), f32({4}), f32({4}), 1.0f, {}); }),
              HasSubstr("expected 0 <= p < 1"));
  EXPECT_THAT(
      error_of([&] { adamw_step(ctx(), {}, f32({4}), f32({5}), f32({5}), f32({4}), f32({5})); }),
      HasSubstr("m is f32[4]"));
}

TEST_F(ShapeChecks, RefuseRowsOutsideTheTable) {
  const std::vector<uint32_t> ids = {0, 3};
  const std::string text = error_of([&] {
    embedding_backward(ctx(), ids, f32({2, 4}), f32({3, 4}));
  });
  EXPECT_THAT(text, HasSubstr("row 3 at position 1"));
  EXPECT_THAT(text, HasSubstr("below 3"));
}

TEST_F(ShapeChecks, EmptyTensorsAreNoWork) {
  rms_norm_forward(ctx(), f32({0, 8}), f32({8}), f32({0, 8}), f32({0}), 1e-5f);
  silu_forward(ctx(), f32({0}), f32({0}));
  embedding_backward(ctx(), {}, f32({0, 4}), f32({3, 4}));
}

gpu::DeviceOptions software() {
  gpu::DeviceOptions options;
  options.selector = "software";
  options.checked = true;
  return options;
}

TEST(GpuBindings, MustBeAlignedAndOfTheirOwn) {
  const auto ctx = Context::gpu(software(), {});
  const Tensor x = ctx->allocate_zeroed({4, 33}, DType::kF32, "test");
  const Tensor y = ctx->allocate_zeroed({4, 33}, DType::kF32, "test");
  EXPECT_THAT(error_of([&] { silu_forward(*ctx, x.rows(1, 2), y.rows(0, 1)); }),
              HasSubstr("begins at byte 132; expected a multiple of 256"));
  EXPECT_THAT(error_of([&] { silu_forward(*ctx, x, x); }), HasSubstr("memory of its own"));
}

/// The operations that take memory beside their tensors.
void scratch_operations(Context& ctx) {
  const int64_t rows = 300, n = 96, vocab = 500;
  const auto f32 = [&](Shape shape) {
    return ctx.allocate_zeroed(std::move(shape), DType::kF32, "test");
  };
  const Tensor x = f32({rows, n}), weight = f32({n}), inv_rms = f32({rows}), loss = f32({1});
  rms_norm_backward(ctx, x, weight, inv_rms, f32({rows, n}), f32({rows, n}), false, f32({n}));
  const std::vector<uint32_t> ids(static_cast<size_t>(rows), 7);
  embedding_backward(ctx, ids, x, f32({vocab, n}));
  sum(ctx, x, loss, false);
  const std::vector<Tensor> grads = {x, weight};
  gradient_norm(ctx, grads, loss, 1.0f, f32({4}));
}

TEST(Plan, CountsTheScratchOfTheOperations) {
  const auto real = Context::gpu(software(), {});
  scratch_operations(*real);
  const auto plan = Context::plan(DeviceKind::kGpu, real->limits(), real->features(), {});
  scratch_operations(*plan);
  EXPECT_EQ(plan->peak_bytes(), real->peak_bytes());
  EXPECT_EQ(plan->bytes_by_label(), real->bytes_by_label());

  const auto cpu = Context::cpu({});
  scratch_operations(*cpu);
  const auto cpu_plan = Context::plan(DeviceKind::kCpu, {}, {}, {});
  scratch_operations(*cpu_plan);
  EXPECT_EQ(cpu_plan->peak_bytes(), cpu->peak_bytes());
}

}  // namespace
}  // namespace wgrad::ops
