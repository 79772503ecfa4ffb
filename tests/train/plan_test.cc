#include "testing.h"

namespace wgrad::train {
namespace {

using namespace testing;

TrainOptions varied(const TemporaryFolder& folder, Method method, Recompute recompute) {
  TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / "out");
  if (method == Method::kFull) train_fully(o);
  o.method = method;
  o.recompute = recompute;
  o.shuffle = true;
  o.batch_size = 3;
  return o;
}

class PlanOfMethod : public ::testing::TestWithParam<std::tuple<Method, Recompute>> {};

TEST_P(PlanOfMethod, PeakIsThatOfTheRun) {
  const TemporaryFolder folder;
  TrainOptions o = varied(folder, std::get<0>(GetParam()), std::get<1>(GetParam()));
  o.grad_accum = 2;
  Record record;
  run_training(o, record, nullptr);
  EXPECT_EQ(record.plan.peak_bytes, record.steps.back().peak_memory_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Plan, PlanOfMethod,
    ::testing::Combine(::testing::Values(Method::kLora, Method::kQlora, Method::kFull),
                       ::testing::Values(Recompute::kNone, Recompute::kBlock)));

TEST(Plan, PeakOfALongRunIsThatOfTheRunWithinTwoHundredths) {
  const TemporaryFolder folder;
  TrainOptions o = varied(folder, Method::kLora, Recompute::kNone);
  o.steps = 200;
  Record record;
  run_training(o, record, nullptr);
  const auto planned = static_cast<double>(record.plan.peak_bytes);
  const auto seen = static_cast<double>(record.steps.back().peak_memory_bytes);
  RecordProperty("planned / seen", std::to_string(planned / seen));
  EXPECT_NEAR(planned, seen, 0.02 * seen);
}

TEST(Plan, RecomputingBlocksTakesLessMemory) {
  const TemporaryFolder folder;
  Record none, block;
  const TrainPlan a = plan_training(varied(folder, Method::kLora, Recompute::kNone), none);
  const TrainPlan b = plan_training(varied(folder, Method::kLora, Recompute::kBlock), block);
  EXPECT_LT(b.peak_bytes, a.peak_bytes);
}

TEST(Plan, CountsRowsTokensAndParametersAndWritesNothing) {
  const TemporaryFolder folder;
  Record record;
  const TrainOptions o = varied(folder, Method::kLora, Recompute::kAuto);
  const TrainPlan plan = plan_training(o, record);
  EXPECT_EQ(plan.rows, 40);
  EXPECT_EQ(plan.steps, 14);
  EXPECT_GT(plan.tokens_per_epoch, plan.counted_tokens_per_epoch);
  EXPECT_GT(plan.counted_tokens_per_epoch, 0);
  // Rank 4 beside layers of 32 x 32, 32 x 16 (twice), 32 x 32 and 32 x 44 (three times).
  EXPECT_EQ(plan.trainable_parameters, 3 * 4 * (2 * (32 + 32) + 2 * (32 + 16) + 3 * (32 + 44)));
  EXPECT_GT(plan.seconds, 0);
  EXPECT_FALSE(fs::exists(o.out));
}

}  // namespace
}  // namespace wgrad::train
