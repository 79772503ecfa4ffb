#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace wgrad::train {
namespace {

LearningRate rate(Schedule schedule, int64_t warmup, int64_t total) {
  return {.base = 1.0, .schedule = schedule, .warmup_steps = warmup, .total_steps = total};
}

void expect_rates(const LearningRate& lr, const std::vector<double>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(lr.at(static_cast<int64_t>(i)), expected[i], 1e-15) << "step " << i;
  }
}

// The values of transformers' get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup and
// get_constant_schedule_with_warmup at steps 0, 1, ...
TEST(Schedule, CosineIsThatOfTransformers) {
  expect_rates(rate(Schedule::kCosine, 3, 10),
               {0, 1. / 3, 2. / 3, 1, 0.9504844339512095, 0.8117449009293668, 0.6112604669781572,
                0.3887395330218428, 0.1882550990706332, 0.04951556604879043});
}

TEST(Schedule, LinearIsThatOfTransformers) {
  expect_rates(rate(Schedule::kLinear, 2, 7), {0, 0.5, 1, 0.8, 0.6, 0.4, 0.2});
}

TEST(Schedule, ConstantKeepsTheRateAfterTheWarmup) {
  expect_rates(rate(Schedule::kConstant, 2, 6), {0, 0.5, 1, 1, 1, 1});
  expect_rates(rate(Schedule::kConstant, 0, 3), {1, 1, 1});
}

TEST(Schedule, EndsAtZeroAndStaysThere) {
  for (Schedule schedule : {Schedule::kCosine, Schedule::kLinear}) {
    EXPECT_NEAR(rate(schedule, 1, 5).at(5), 0.0, 1e-15);
  }
  EXPECT_EQ(rate(Schedule::kLinear, 1, 5).at(9), 0.0);
}

TEST(Schedule, WarmupLongerThanTheRunNeverReachesTheRate) {
  expect_rates(rate(Schedule::kCosine, 8, 4), {0, 0.125, 0.25, 0.375});
}

TEST(Schedule, WarmupRatioIsRoundedUpToWholeSteps) {
  TrainOptions o;
  o.warmup_ratio = 0.03;
  EXPECT_EQ(make_learning_rate(o, 10).warmup_steps, 1);
  EXPECT_EQ(make_learning_rate(o, 100).warmup_steps, 3);
  EXPECT_EQ(make_learning_rate(o, 101).warmup_steps, 4);
  EXPECT_EQ(make_learning_rate(o, 1).warmup_steps, 0) << "the only step would have a rate of 0";
  o.warmup_ratio = 0;
  EXPECT_EQ(make_learning_rate(o, 10).warmup_steps, 0);
  o.warmup_steps = 7;
  EXPECT_EQ(make_learning_rate(o, 10).warmup_steps, 7);
}

TEST(Schedule, ARunWhoseOnlyStepWouldTrainNothingIsRefused) {
  TrainOptions o;
  o.warmup_steps = 1;
  EXPECT_THROW(make_learning_rate(o, 1), Error);
  EXPECT_EQ(make_learning_rate(o, 2).warmup_steps, 1);
}

TEST(Schedule, DefaultRateDependsOnTheMethod) {
  TrainOptions o;
  EXPECT_EQ(make_learning_rate(o, 10).base, 2e-4);
  o.method = Method::kFull;
  EXPECT_EQ(make_learning_rate(o, 10).base, 2e-5);
  o.lr = 0.5;
  EXPECT_EQ(make_learning_rate(o, 10).base, 0.5);
}

}  // namespace
}  // namespace wgrad::train
