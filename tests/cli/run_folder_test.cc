#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <limits>

#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

/// Makes the last norm of model/model.safetensors NaN, so that every loss is.
void poison(const Workplace& place) {
  const fs::path path = place.root() / "model/model.safetensors";
  std::string file = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  const auto tensors = nlohmann::json::parse(file.substr(8, header));
  const auto& norm = tensors.at("model.norm.weight");
  ASSERT_EQ(norm.at("dtype"), "F32");
  const uint64_t begin = norm.at("data_offsets")[0];
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(file.data() + 8 + header + begin, &nan, sizeof nan);
  write_file(path, file);
}

TEST(RunFolder, OfARunWithoutAFiniteStepHasNoResult) {
  const Workplace place;
  poison(place);
  const Outcome outcome = run_program(place.train({"--steps", "2", "--log-every", "1"}));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("error: step 2: no step of this run had a finite loss"));
  EXPECT_THAT(outcome.err, HasSubstr("--lr"));
  EXPECT_THAT(outcome.err, HasSubstr("loss non-finite"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("done")));
  EXPECT_THAT(outcome.err, Not(HasSubstr("e+38")));
  EXPECT_FALSE(fs::exists(place.root() / "out/adapter_model.safetensors"));
  for (const auto& line : json_lines(read_file(place.root() / "out/metrics.jsonl"))) {
    EXPECT_TRUE(line.at("loss").is_null());
    EXPECT_TRUE(line.at("grad_norm").is_null());
  }
}

void wait_for_a_step(Child& child, const Workplace& place) {
  while (!child.ended() && read_file(place.root() / "out/metrics.jsonl").empty()) usleep(500);
}

TEST(RunFolder, IsOfOneRunAtATime) {
  const Workplace place;
  // So many steps that neither run ends by itself.
  const Arguments run = place.train({"--steps", "1000000", "--resume"});
  Child first(run);
  wait_for_a_step(first, place);
  const Outcome second = run_program(run);
  EXPECT_EQ(second.code, 2) << second.err;
  EXPECT_THAT(second.err, HasSubstr("error: " + place.path("out") + ": another process (" +
                                    std::to_string(first.pid()) + ")"));
  EXPECT_THAT(second.err, HasSubstr("choose another folder"));
  EXPECT_FALSE(first.ended());

  first.signal(SIGKILL);
  first.wait();
  fs::remove(place.root() / "out/metrics.jsonl");
  Child third(run);
  wait_for_a_step(third, place);
  third.signal(SIGTERM);
  EXPECT_EQ(third.wait().code, 128 + SIGTERM);
  EXPECT_FALSE(fs::exists(place.root() / "out/.lock"));
}

}  // namespace
}  // namespace wgrad::cli
