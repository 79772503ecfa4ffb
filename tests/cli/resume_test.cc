#include <signal.h>
#include <unistd.h>

#include <random>
#include <sstream>

#include "resume_testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::Not;

TEST(Resume, AKilledRunEndsWithTheBitsOfOneThatWasNot) {
  const Workplace place;
  const Arguments run = with(place.train(kRun), {"--resume"});
  std::mt19937 random(std::random_device{}());
  constexpr int kKills = 6;
  for (int i = 0; i < kKills; ++i) {
    Child child(run);
    wait_for_steps(child, place, 2 + static_cast<size_t>(i) * 6);
    usleep(std::uniform_int_distribution<useconds_t>(0, 4000)(random));
    child.signal(SIGKILL);
    child.wait();
  }
  const Outcome last = run_program(run);
  EXPECT_EQ(last.code, 0) << last.err;
  expect_same_result(place);
}

/// Ends the run three times, each time past other checkpoints, and then lets it end.
void run_with_kills(const Workplace& place, const Arguments& run, const ChildSetup& setup) {
  for (const size_t lines : {4u, 13u, 25u}) {
    Child child(run, setup);
    wait_for_steps(child, place, lines);
    child.signal(SIGKILL);
    child.wait();
  }
  const Outcome last = run_program(run, setup);
  EXPECT_EQ(last.code, 0) << last.err;
}

/// Every row lies in the temporary file, none in memory.
void keep_no_rows() { setenv("WGRAD_ROW_MEMORY", "0", 1); }

TEST(Resume, AKilledRunWithRowsOnTheDiskEndsWithTheBitsOfOneThatHadThemInMemory) {
  const Workplace place;
  run_with_kills(place, with(place.train(kRun), {"--resume"}), keep_no_rows);
  expect_same_result(place);
}

TEST(Resume, AKilledRunThatPacksEndsWithTheBitsOfOneThatWasNot) {
  const Arguments packed = with(kRun, {"--packing", "--max-seq-len", "24", "--shuffle"});
  const Workplace whole;
  ASSERT_EQ(run_program(whole.train(packed)).code, 0);
  EXPECT_NE(steps_of(whole.root() / "out"), steps_of(straight().root() / "out"));
  for (const ChildSetup& setup : {ChildSetup(), ChildSetup(keep_no_rows)}) {
    const Workplace place;
    run_with_kills(place, with(place.train(packed), {"--resume"}), setup);
    expect_same_result(place, whole);
  }
}

TEST(Resume, RefusesAMemoryForRowsThatIsNoNumber) {
  const Workplace place;
  const Outcome outcome = run_program(place.train(), [] { setenv("WGRAD_ROW_MEMORY", "1GB", 1); });
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("WGRAD_ROW_MEMORY: \"1GB\""));
}

class StopSignal : public ::testing::TestWithParam<int> {};

TEST(Resume, ARunOutlivesWhoeverReadsItsProgress) {
  const Workplace place;
  const auto close_reader = [] {
    int ends[2];
    if (pipe(ends) != 0) _exit(127);
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
  };
  EXPECT_EQ(run_program(place.train({"--steps", "20"}), close_reader).code, 0);
  EXPECT_TRUE(fs::exists(place.root() / "out/adapter_model.safetensors"));
}

// timeout(1) sends a signal to the process and to its group.
TEST_P(StopSignal, SentTwiceAtOnceIsOne) {
  const Workplace place;
  Child child(place.train({"--steps", "100000"}));
  wait_for_steps(child, place, 3);
  for (int i = 0; i < 2; ++i) {
    child.signal(GetParam());
    usleep(1000);
  }
  EXPECT_THAT(child.wait().err, HasSubstr("stopped after step"));
}

TEST_P(StopSignal, FinishesTheStepSavesAndSaysSo) {
  const Workplace place;
  // So many steps that the signal comes before the last.
  const Arguments run = place.train({"--steps", "100000"});
  Child child(run);
  wait_for_steps(child, place, 3);
  child.signal(GetParam());
  const Outcome outcome = child.wait();
  EXPECT_EQ(outcome.code, 128 + GetParam()) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("stopping after this step, with a checkpoint"));
  EXPECT_THAT(outcome.err, HasSubstr("--resume"));
  const auto steps = steps_of(place.root() / "out");
  ASSERT_GE(steps.size(), 3u);
  const auto last = static_cast<int64_t>(steps.back()[0]);
  char name[32];
  std::snprintf(name, sizeof name, "step-%06d", static_cast<int>(last));
  EXPECT_TRUE(fs::exists(place.root() / "out/checkpoints" / name / "state.json")) << name;
  EXPECT_FALSE(fs::exists(place.root() / "out/adapter_model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Each, StopSignal, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

/// The signals that a thread has blocked, a bit each.
uint64_t blocked_signals(const fs::path& thread) {
  std::istringstream lines(read_file(thread / "status"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
  }
  return 0;
}

// A handler that ran on the stack of a thread within oneDNN's product overwrote that product's
// data.
TEST(Resume, NoThreadOfARunIsInterruptedByASignal) {
  const Workplace place;
  Child child(place.train({"--steps", "100000"}));
  wait_for_steps(child, place, 3);
  const uint64_t both = (uint64_t{1} << (SIGINT - 1)) | (uint64_t{1} << (SIGTERM - 1));
  int threads = 0, open = 0;
  for (const auto& thread :
       fs::directory_iterator(fs::path("/proc") / std::to_string(child.pid()) / "task")) {
    open += (blocked_signals(thread.path()) & both) == both ? 0 : 1;
    ++threads;
  }
  EXPECT_GE(threads, 2);
  EXPECT_EQ(open, 1) << "the thread that waits for them";
}

TEST(Resume, AfterASignalEndsWithTheSameBits) {
  const Workplace place;
  Child child(place.train(kRun));
  wait_for_steps(child, place, 5);
  child.signal(SIGTERM);
  child.wait();
  const Outcome last = run_program(with(place.train(kRun), {"--resume"}));
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_THAT(last.err, HasSubstr("going on after step "));
  expect_same_result(place);
}

TEST(Resume, OfAFinishedRunOnlyWritesTheResult) {
  const Workplace place;
  copy_run(place);
  const Outcome outcome = run_program(resume_copy(place));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  expect_same_result(place);
}

TEST(Resume, OfAFinishedRunReportsThatRun) {
  const Workplace place;
  copy_run(place);
  const auto state =
      nlohmann::json::parse(read_file(place.root() / "out/checkpoints/step-000040/state.json"));
  const auto last = json_lines(read_file(place.root() / "out/metrics.jsonl")).back();
  const Outcome json = run_program(resume_copy(place, {"--json"}));
  EXPECT_EQ(json.code, 0) << json.err;
  const auto result = json_lines(json.out).back();
  EXPECT_EQ(result.at("steps"), 40);
  EXPECT_EQ(result.at("finished"), true);
  EXPECT_EQ(result.at("loss"), last.at("loss"));
  EXPECT_EQ(result.at("seconds"), state.at("seconds"));
  EXPECT_GE(result.at("seconds"), last.at("seconds"));
  const Outcome text = run_program(resume_copy(place));
  EXPECT_THAT(text.err, HasSubstr(" " + last.at("total_tokens").dump() + " tokens in "));
  EXPECT_THAT(text.err, Not(HasSubstr("loss 0.0000")));
}

TEST(Resume, AStopBetweenLinesOfMetricsReportsItsTimeAndLoss) {
  const Workplace place;
  const Arguments run = place.train(
      {"--steps", "100000", "--log-every", "100000", "--save-every", "1", "--keep", "1", "--json"});
  Child child(run);
  while (!child.ended() && !fs::exists(place.root() / "out/checkpoints")) usleep(500);
  child.signal(SIGTERM);
  const Outcome outcome = child.wait();
  ASSERT_EQ(outcome.code, 128 + SIGTERM) << outcome.err;
  const auto result = json_lines(outcome.out).back();
  EXPECT_EQ(result.at("finished"), false);
  ASSERT_GT(result.at("steps"), 0);
  EXPECT_GT(result.at("seconds"), 0);
  EXPECT_GT(result.at("loss"), 0);
}

TEST(Resume, PassesOverATornCheckpointAndSaysWhy) {
  for (const char* file : {"state.safetensors", "state.json"}) {
    const Workplace place;
    copy_run(place);
    const fs::path torn = place.root() / "out/checkpoints/step-000040" / file;
    fs::resize_file(torn, fs::file_size(torn) / 2);
    const Outcome outcome = run_program(resume_copy(place));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("warning: checkpoint passed over: " + torn.string()));
    expect_same_result(place);
  }
}

TEST(Resume, SeesAFlippedBit) {
  const Workplace place;
  copy_run(place);
  const fs::path state = place.root() / "out/checkpoints/step-000040/state.safetensors";
  std::string bytes = read_file(state);
  bytes[bytes.size() - 1000] = static_cast<char>(bytes[bytes.size() - 1000] ^ 4);
  write_file(state, bytes);
  const Outcome outcome = run_program(resume_copy(place));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("checksum"));
  expect_same_result(place);
}

TEST(Resume, WithoutAnyWholeCheckpointBeginsAgain) {
  const Workplace place;
  copy_run(place);
  for (const auto& entry : fs::directory_iterator(place.root() / "out/checkpoints")) {
    fs::remove(entry.path() / "state.json");
  }
  const Outcome outcome = run_program(resume_copy(place));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("no checkpoint to resume from"));
  expect_same_result(place);
}

TEST(Resume, OnAnotherDayRendersTheDateOfTheFirst) {
  const Workplace place;
  place.set_template(
      "w{{ strftime_now('%H') | int + 20 }} {% for m in messages %}{{ m.content }} {% endfor "
      "%}</s>");
  place.write("train.jsonl", R"({"messages": [{"role": "user", "content": "w5"}, )"
                             R"({"role": "assistant", "content": "w6 w7 w8"}]})"
                             "\n");
  const Arguments run = place.train({"--steps", "6", "--save-every", "2", "--train-on", "all"});
  // The clock on the wall is hours apart in two zones.
  auto in_zone = [](const char* zone) { return [zone] { setenv("TZ", zone, 1); }; };
  const Outcome first = run_program(run, in_zone("AAA0"));
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string whole = read_file(place.root() / "out/adapter_model.safetensors");
  for (const char* later : {"step-000004", "step-000006"}) {
    fs::remove_all(place.root() / "out/checkpoints" / later);
  }
  fs::remove(place.root() / "out/adapter_model.safetensors");
  const Outcome resumed = run_program(with(run, {"--resume"}), in_zone("BBB5"));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(read_file(place.root() / "out/adapter_model.safetensors") == whole);
  const Outcome other = run_program(with(run, {"--out", place.path("other")}), in_zone("BBB5"));
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_FALSE(read_file(place.root() / "other/adapter_model.safetensors") == whole);
}

TEST(Resume, KeepsTheNewestCheckpoints) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(straight().root() / "out/checkpoints")) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"step-000036", "step-000039", "step-000040"}));
}

TEST(Resume, RunYamlAsConfigIsTheSameRun) {
  const Workplace place;
  const Outcome outcome = run_program(
      {"train", "--config", straight().path("out/run.yaml"), "--out", place.path("out")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  expect_same_result(place);
  std::string mine = read_file(place.root() / "out/run.yaml");
  std::string other = read_file(straight().root() / "out/run.yaml");
  auto drop_out = [](std::string& text) {
    const size_t at = text.find("\nout: ");
    text.erase(at, text.find('\n', at + 1) - at);
  };
  drop_out(mine);
  drop_out(other);
  EXPECT_EQ(mine, other);
}

}  // namespace
}  // namespace wgrad::cli
