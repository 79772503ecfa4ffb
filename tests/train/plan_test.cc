#include <sstream>

#include "testing.h"
#include "train/plan.h"
#include "wgrad/error.h"

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

/// What the refusal of a run says, planned for a GPU of so much memory.
std::string refusal(const TrainOptions& options, int64_t memory_bytes) {
  Record record;
  try {
    plan_for_gpu(options, record, memory_bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  ADD_FAILURE() << "it fits into " << memory_bytes;
  return {};
}

int64_t peak(const TrainOptions& options) {
  Record record;
  return plan_for_gpu(options, record, int64_t{1} << 40).peak_bytes;
}

/// The options as one offered way says.
TrainOptions changed(TrainOptions o, const std::string& way) {
  std::istringstream words(way);
  for (std::string word; words >> word;) {
    if (word == "--recompute") o.recompute = Recompute::kBlock;
    if (word == "--method" && words >> word) {
      o.method = word == "lora" ? Method::kLora : Method::kQlora;
    }
    if (word == "--batch-size") words >> o.batch_size;
    if (word == "--max-seq-len") words >> o.max_seq_len;
  }
  return o;
}

TEST(Plan, OffersOptionsThatMakeTheRunFit) {
  const TemporaryFolder folder;
  const TrainOptions o = varied(folder, Method::kLora, Recompute::kNone);
  const int64_t memory = peak(o) - 1;
  const std::string text = refusal(o, memory);
  size_t ways = 0;
  for (size_t at = text.find("use ") + 4, end = 0; end != std::string::npos; at = end + 5) {
    end = text.find(", or ", at);
    EXPECT_LE(peak(changed(o, text.substr(at, end - at))), memory) << text;
    ++ways;
  }
  EXPECT_GE(ways, 3u) << text;
}

TEST(Plan, OffersACombinationWhereNoOptionAloneIsEnough) {
  const TemporaryFolder folder;
  const TrainOptions o = varied(folder, Method::kLora, Recompute::kNone);
  const int64_t memory = peak(changed(o, "--recompute block --batch-size 1 --method qlora"));
  const std::string text = refusal(o, memory);
  EXPECT_EQ(text.find(", or "), std::string::npos) << text;
  EXPECT_NE(text.find(" and --"), std::string::npos) << text;
  EXPECT_LE(peak(changed(o, text.substr(text.find("use ")))), memory) << text;
  EXPECT_NE(refusal(o, 1000).find("no setting makes it fit"), std::string::npos);
}

}  // namespace
}  // namespace wgrad::train
