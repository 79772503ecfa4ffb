#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "testing.h"
#include "wgrad/error.h"

namespace wgrad::train {
namespace {

using namespace testing;

/// A copy of a model whose token w100 is embedded as NaN; its output layer has weights of its own,
/// so only the rows that hold the token are touched.
fs::path poisoned_model(const TemporaryFolder& folder) {
  const fs::path copy = folder.path() / "model";
  fs::copy(models_folder() / "llama2", copy);
  const fs::path path = copy / "model.safetensors";
  std::string file = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  const auto tensors = nlohmann::json::parse(file.substr(8, header));
  const auto& embedding = tensors.at("model.embed_tokens.weight");
  const uint64_t begin = embedding.at("data_offsets")[0], width = embedding.at("shape")[1];
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(file.data() + 8 + header + begin + 100 * width * sizeof nan, &nan, sizeof nan);
  write_file(path, file);
  return copy;
}

/// One row a step; `bad` are the steps (0-based) whose row holds w100.
TrainOptions poisoned_run(const TemporaryFolder& folder, int steps, const std::set<int>& bad) {
  std::string rows;
  for (int i = 0; i < steps; ++i) {
    rows += R"({"prompt": "w5", "completion": ")" + std::string(bad.count(i) ? " w100" : " w6") +
            " w7\"}\n";
  }
  TrainOptions o = toy_options(folder, rows);
  o.model = poisoned_model(folder).string();
  o.batch_size = 1;
  o.steps = steps;
  o.schedule = Schedule::kConstant;
  o.warmup_steps = 0;
  return o;
}

TEST(NonFiniteStep, IsSkippedAndSaid) {
  const TemporaryFolder folder;
  TrainOptions o = poisoned_run(folder, 7, {1, 2, 4, 5});
  o.save_every = 1;
  o.keep = 10;
  Record record;
  EXPECT_EQ(run_training(o, record, nullptr).end, TrainEnd::kFinished);
  ASSERT_EQ(record.warnings.size(), 4u);
  EXPECT_NE(record.warnings[0].find("step 2: loss nan"), std::string::npos) << record.warnings[0];
  EXPECT_NE(record.warnings[0].find("skipped"), std::string::npos);
  auto weights = [&](int step) {
    return read_file(fs::path(o.out) / "checkpoints" / ("step-00000" + std::to_string(step)) /
                     "state.safetensors");
  };
  EXPECT_TRUE(weights(2) == weights(1));  // moments and parameters
  EXPECT_TRUE(weights(3) == weights(1));
  EXPECT_FALSE(weights(4) == weights(3));
  EXPECT_TRUE(std::isfinite(record.steps[6].loss));
  EXPECT_TRUE(read_lines(fs::path(o.out) / "metrics.jsonl")[1].at("loss").is_null());
}

TEST(NonFiniteStep, StopsARunAtTheThirdInARowAndSaysWhetherACheckpointIsThere) {
  const auto error_of = [](const std::set<int>& bad, int64_t save_every) {
    const TemporaryFolder folder;
    TrainOptions o = poisoned_run(folder, 5, bad);
    o.save_every = save_every;
    Record record;
    try {
      run_training(o, record, nullptr);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(error_of({1, 2, 3}, 1).find("the last checkpoint is intact"), std::string::npos);
  const std::string first = error_of({0, 1, 2}, 0);
  EXPECT_NE(first.find("for the 3rd step in a row"), std::string::npos) << first;
  EXPECT_NE(first.find("no checkpoint was saved"), std::string::npos) << first;
  EXPECT_EQ(first.find("--dtype f32"), std::string::npos) << "the run is in f32 already";
}

TEST(NonFiniteStep, HasNoGradientNormInMetrics) {
  const TemporaryFolder folder;
  const TrainOptions o = poisoned_run(folder, 2, {0});
  Record record;
  run_training(o, record, nullptr);
  const auto lines = read_lines(fs::path(o.out) / "metrics.jsonl");
  EXPECT_TRUE(lines[0].at("grad_norm").is_null());
  EXPECT_TRUE(lines[1].at("grad_norm").is_number());
}

TEST(NonFiniteStep, OfEveryStepFailsTheRun) {
  const TemporaryFolder folder;
  TrainOptions o = poisoned_run(folder, 2, {0, 1});
  for (const bool resume : {false, true}) {  // again, so of the checkpoint at its end too
    o.save_every = 1;
    o.resume = resume;
    Record record;
    const Error error = error_of([&] { run_training(o, record, nullptr); });
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
    EXPECT_NE(std::string(error.what()).find("nothing was trained"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("--lr"), std::string::npos) << error.what();
    EXPECT_FALSE(fs::exists(fs::path(o.out) / "adapter_model.safetensors"));
  }
}

TEST(NonFiniteStep, ThreeInARowStopTheRun) {
  const TemporaryFolder folder;
  TrainOptions o = poisoned_run(folder, 8, {2, 3, 4});
  o.save_every = 1;
  Record record;
  const Error error = error_of([&] { run_training(o, record, nullptr); });
  EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
  EXPECT_NE(std::string(error.what()).find("step 5: "), std::string::npos) << error.what();
  EXPECT_NE(std::string(error.what()).find("--lr"), std::string::npos) << error.what();
  EXPECT_EQ(record.checkpoints.size(), 4u);
  EXPECT_FALSE(fs::exists(fs::path(o.out) / "adapter_model.safetensors"));
}

TEST(Stop, RequestedBeforeTheFirstStepSavesStepZero) {
  const TemporaryFolder folder;
  const TrainOptions o = tiny_options("llama3", "lora_llama3", folder.path() / "out");
  const std::atomic<bool> stop{true};
  Record record;
  const TrainResult result = run_training(o, record, &stop);
  EXPECT_EQ(result.end, TrainEnd::kStopped);
  EXPECT_EQ(result.steps, 0);
  EXPECT_TRUE(fs::exists(fs::path(o.out) / "checkpoints/step-000000/state.json"));
}

}  // namespace
}  // namespace wgrad::train
