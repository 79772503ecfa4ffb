#include "ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "ops/attention_source.h"
#include "ops/verify_attention.h"
#include "wgrad/error.h"

namespace wgrad::ops {
namespace {

enum class Mode { kCpu, kCoreOnly, kAllFeatures };

std::unique_ptr<Context> make_context(Mode mode, uint64_t max_binding_size = 0) {
  if (mode == Mode::kCpu) return Context::cpu({});
  gpu::DeviceOptions options;
  options.selector = "software";
  options.checked = true;
  options.core_only = mode == Mode::kCoreOnly;
  options.max_binding_size = max_binding_size;
  return Context::gpu(options, {});
}

AttentionShape shape_of(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t window = 0) {
  AttentionShape s;
  s.heads = heads;
  s.kv_heads = kv_heads;
  s.head_dim = head_dim;
  s.window = window;
  s.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return s;
}

AttentionCase training_case(const AttentionShape& shape, std::vector<int64_t> rows) {
  AttentionCase c;
  c.shape = shape;
  c.rows = std::move(rows);
  return c;
}

AttentionCase generation_case(AttentionShape shape, std::vector<int64_t> rows, int64_t queries) {
  AttentionCase c;
  c.rows = std::move(rows);
  c.queries = queries;
  shape.query_offset = c.keys() - queries;
  c.shape = shape;
  return c;
}

class AttentionTest : public testing::TestWithParam<Mode> {
 protected:
  void SetUp() override { ctx_ = make_context(GetParam()); }

  void expect_within_bounds(const AttentionCase& c) {
    const AttentionInputs in = attention_inputs(c);
    const AttentionReference reference = attention_reference(c, in, {});
    const VerifyResult r = check_attention(c, reference, run_attention(*ctx_, c, in), "test");
    EXPECT_TRUE(r.passed) << r.what << ": " << r.where << ", error " << r.worst_error << ", bound "
                          << r.bound;
    EXPECT_GT(r.worst_error, 0.0) << "a comparison that sees no rounding compares nothing";
  }

  std::unique_ptr<Context> ctx_;
};

TEST_P(AttentionTest, AgreesWithTheDoubleResultForRowLengthsAroundTheTiles) {
  for (int64_t length : {1, 2, 31, 32, 33, 63, 64, 65, 97, 200}) {
    AttentionCase c = training_case(shape_of(4, 4, 64), {length});
    if (length == 1) c.shape.heads = 8;
    expect_within_bounds(c);
  }
}

TEST_P(AttentionTest, AgreesForSeveralRowsInOneBatch) {
  expect_within_bounds(training_case(shape_of(9, 3, 64), {1, 33, 1, 1, 65, 7, 31}));
  expect_within_bounds(training_case(shape_of(8, 1, 32), {64, 64, 1}));
  expect_within_bounds(training_case(shape_of(2, 2, 16), std::vector<int64_t>(70, 1)));
}

TEST_P(AttentionTest, AgreesForEveryKindOfHeadDimension) {
  for (int64_t head_dim : {1, 3, 30, 32, 80, 128, 256}) {
    expect_within_bounds(training_case(shape_of(4, 2, head_dim), {37, 50}));
  }
}

TEST_P(AttentionTest, AgreesWithSlidingWindows) {
  for (int64_t window : {1, 2, 17, 32, 64, 1000}) {
    expect_within_bounds(training_case(shape_of(2, 1, 64, window), {3, 130, 40}));
  }
}

TEST_P(AttentionTest, LargeScoresNeitherOverflowNorLoseTheLargest) {
  // |score| up to 1e4: sqrt(64) * 35.4^2.
  AttentionCase c = training_case(shape_of(4, 2, 64), {65, 40});
  c.magnitude = 35.4f;
  c.shape.scale = 1.0f;
  expect_within_bounds(c);
  c.magnitude = 1e-5f;
  expect_within_bounds(c);
}

TEST_P(AttentionTest, GradientsScaleOverTenDecades) {
  for (float magnitude : {1e-5f, 1e5f}) {
    AttentionCase c = training_case(shape_of(4, 2, 64), {50, 20});
    c.grad_magnitude = magnitude;
    expect_within_bounds(c);
  }
}

TEST_P(AttentionTest, AgreesForQueriesAfterCachedKeys) {
  for (int64_t keys : {1, 2, 33, 256, 257, 700, 1025}) {
    expect_within_bounds(generation_case(shape_of(4, 2, 64), {keys}, 1));
  }
  expect_within_bounds(generation_case(shape_of(9, 3, 80), {300}, 3));
  expect_within_bounds(generation_case(shape_of(2, 1, 256), {600}, 8));
  expect_within_bounds(generation_case(shape_of(2, 1, 30), {100, 500}, 2));
  expect_within_bounds(generation_case(shape_of(2, 1, 64, 100), {900}, 5));
  expect_within_bounds(generation_case(shape_of(4, 2, 64), {130}, 70));
}

TEST_P(AttentionTest, GivesTheSameBitsEachTime) {
  const AttentionCase c = training_case(shape_of(4, 2, 80), {70, 90, 5});
  const AttentionInputs in = attention_inputs(c);
  const AttentionOutputs first = run_attention(*ctx_, c, in);
  const AttentionOutputs second = run_attention(*ctx_, c, in);
  EXPECT_EQ(first.out, second.out);
  EXPECT_EQ(first.logsumexp, second.logsumexp);
  EXPECT_EQ(first.grad_q, second.grad_q);
  EXPECT_EQ(first.grad_k, second.grad_k);
  EXPECT_EQ(first.grad_v, second.grad_v);
}

/// The outputs' part that belongs to tokens [begin, end).
AttentionOutputs tokens_of(const AttentionOutputs& o, const AttentionShape& s, int64_t begin,
                           int64_t end) {
  const auto part = [&](const std::vector<float>& x, int64_t width) {
    return std::vector<float>(x.begin() + begin * width, x.begin() + end * width);
  };
  return {part(o.out, s.heads * s.head_dim), part(o.logsumexp, s.heads),
          part(o.grad_q, s.heads * s.head_dim), part(o.grad_k, s.kv_heads * s.head_dim),
          part(o.grad_v, s.kv_heads * s.head_dim)};
}

AttentionInputs inputs_of(const AttentionInputs& in, const AttentionShape& s, int64_t begin,
                          int64_t end) {
  const auto part = [&](const std::vector<float>& x, int64_t width) {
    return std::vector<float>(x.begin() + begin * width, x.begin() + end * width);
  };
  const size_t n = static_cast<size_t>(end - begin);
  return {part(in.q, s.heads * s.head_dim),    part(in.k, s.kv_heads * s.head_dim),
          part(in.v, s.kv_heads * s.head_dim), part(in.grad_out, s.heads * s.head_dim),
          std::vector<uint32_t>(n, 0),         std::vector<uint32_t>(n, static_cast<uint32_t>(n))};
}

TEST_P(AttentionTest, EachRowOfABatchEqualsTheRowAlone) {
  const AttentionCase batch = training_case(shape_of(4, 2, 64), {3, 70, 1, 64, 33});
  const AttentionInputs in = attention_inputs(batch);
  const AttentionOutputs all = run_attention(*ctx_, batch, in);
  int64_t begin = 0;
  for (int64_t length : batch.rows) {
    const AttentionCase alone = training_case(batch.shape, {length});
    const AttentionInputs own = inputs_of(in, batch.shape, begin, begin + length);
    const AttentionReference reference = attention_reference(alone, own, {});
    const VerifyResult r = check_attention(
        alone, reference, tokens_of(all, batch.shape, begin, begin + length), "in the batch");
    EXPECT_TRUE(r.passed) << r.what << ": " << r.where;
    begin += length;
  }
}

TEST_P(AttentionTest, ARowAtAMultipleOf64HasTheSameBitsInAnyBatch) {
  const AttentionShape shape = shape_of(4, 2, 64);
  const AttentionCase one = training_case(shape, {50, 14, 77, 9});
  const AttentionInputs in = attention_inputs(one);
  const AttentionOutputs first = run_attention(*ctx_, one, in);
  const AttentionInputs own = inputs_of(in, shape, 64, 64 + 77);
  const AttentionOutputs alone = run_attention(*ctx_, training_case(shape, {77}), own);
  const AttentionOutputs in_batch = tokens_of(first, shape, 64, 64 + 77);
  EXPECT_EQ(in_batch.out, alone.out);
  EXPECT_EQ(in_batch.logsumexp, alone.logsumexp);
  EXPECT_EQ(in_batch.grad_q, alone.grad_q);
  EXPECT_EQ(in_batch.grad_k, alone.grad_k);
  EXPECT_EQ(in_batch.grad_v, alone.grad_v);
}

TEST_P(AttentionTest, NoRowReadsAnother) {
  const AttentionCase c = training_case(shape_of(4, 2, 64), {40, 60, 45});
  const AttentionInputs in = attention_inputs(c);
  AttentionInputs changed = in;
  const size_t q_width = 4 * 64, k_width = 2 * 64;
  for (size_t t = 40; t < 100; ++t) {
    for (size_t e = 0; e < q_width; ++e) changed.q[t * q_width + e] += 3.0f;
    for (size_t e = 0; e < k_width; ++e) changed.k[t * k_width + e] -= 2.0f;
    for (size_t e = 0; e < k_width; ++e) changed.v[t * k_width + e] *= 5.0f;
    for (size_t e = 0; e < q_width; ++e) changed.grad_out[t * q_width + e] += 1.0f;
  }
  const AttentionOutputs before = run_attention(*ctx_, c, in);
  const AttentionOutputs after = run_attention(*ctx_, c, changed);
  for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 40}, {100, 145}}) {
    const AttentionOutputs a = tokens_of(before, c.shape, begin, end);
    const AttentionOutputs b = tokens_of(after, c.shape, begin, end);
    EXPECT_EQ(a.out, b.out);
    EXPECT_EQ(a.grad_q, b.grad_q);
    EXPECT_EQ(a.grad_k, b.grad_k);
    EXPECT_EQ(a.grad_v, b.grad_v);
  }
}

TEST_P(AttentionTest, WrongShapesAreNamed) {
  const Tensor q = ctx_->allocate({3, 8}, DType::kF32, "q");
  const Tensor k = ctx_->allocate({3, 4}, DType::kF32, "k");
  const Tensor lse = ctx_->allocate({3, 2}, DType::kF32, "lse");
  const Tensor begin = ctx_->allocate({3}, DType::kU32, "begin");
  try {
    attention_forward(*ctx_, shape_of(2, 1, 4), q, k, q, begin, q, lse);
    FAIL() << "v has the shape of q";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("v is f32[3, 8]"), std::string::npos) << e.what();
  }
  EXPECT_THROW(attention_forward(*ctx_, shape_of(2, 1, 257), q, k, k, begin, q, lse), Error);
  EXPECT_THROW(attention_forward(*ctx_, shape_of(3, 2, 4), q, k, k, begin, q, lse), Error);
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionTest,
                         testing::Values(Mode::kCpu, Mode::kCoreOnly, Mode::kAllFeatures),
                         [](const testing::TestParamInfo<Mode>& info) {
                           switch (info.param) {
                             case Mode::kCpu:
                               return "Cpu";
                             case Mode::kCoreOnly:
                               return "CoreOnly";
                             case Mode::kAllFeatures:
                               break;
                           }
                           return "AllFeatures";
                         });

TEST(AttentionDispatchTest, MoreWorkgroupsThanADispatchDimensionHoldsAreFolded) {
  // A window of one key leaves all but one of a query's 1100 parts without work.
  const AttentionCase c = generation_case(shape_of(8, 1, 1, 1), {1100 * kDecodeKeys}, 8);
  ASSERT_GT(c.queries * c.shape.heads * 1100, 65535);
  const AttentionInputs in = attention_inputs(c);
  const auto ctx = make_context(Mode::kCoreOnly);
  const AttentionOutputs seen = run_attention(*ctx, c, in);
  const VerifyResult r = check_attention(c, attention_reference(c, in, {}), seen, "test");
  EXPECT_TRUE(r.passed) << r.where;
}

// 4 heads of 64 are 1 KiB a token: 128 tokens fit a binding of 128 KiB.
TEST(AttentionSplitTest, RowsPastTheBindingLimitRunInSegments) {
  const AttentionCase c = training_case(shape_of(4, 2, 64), {100, 20, 50, 70, 1, 64});
  const AttentionInputs in = attention_inputs(c);
  const auto small = make_context(Mode::kCoreOnly, 128 * 1024);
  const auto large = make_context(Mode::kCoreOnly);
  const AttentionOutputs a = run_attention(*small, c, in);
  const AttentionOutputs b = run_attention(*large, c, in);
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(a.logsumexp, b.logsumexp);
  EXPECT_EQ(a.grad_q, b.grad_q);
  EXPECT_EQ(a.grad_k, b.grad_k);
  EXPECT_EQ(a.grad_v, b.grad_v);
}

TEST(AttentionSplitTest, ARowLargerThanABindingIsRefusedWithWhatToDo) {
  const AttentionCase c = training_case(shape_of(4, 2, 64), {200});
  const auto small = make_context(Mode::kCoreOnly, 128 * 1024);
  try {
    run_attention(*small, c, attention_inputs(c));
    FAIL() << "the row does not fit";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("--max-seq-len"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace wgrad::ops
