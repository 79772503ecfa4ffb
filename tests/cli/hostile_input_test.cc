#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

void expect_error(const Outcome& outcome, const std::string& word) {
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("error: "));
  EXPECT_THAT(outcome.err, HasSubstr(word));
}

TEST(HostileModel, PipeInPlaceOfAFileIsNotWaitedFor) {
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
    const Workplace place;
    fs::remove(place.root() / "model" / name);
    ASSERT_EQ(::mkfifo(place.path(std::string("model/") + name).c_str(), 0600), 0);
    expect_error(run_program(place.train()), std::string(name) + ": this is no plain file");
  }
}

TEST(HostileModel, LinkToItselfIsNamed) {
  for (const char* name : {"generation_config.json", "tokenizer_config.json"}) {
    const Workplace place;
    fs::remove(place.root() / "model" / name);
    fs::create_symlink(name, place.root() / "model" / name);
    expect_error(run_program(place.train()), name);
  }
}

TEST(HostileModel, EpsilonThatNoFloatHoldsIsRefused) {
  const Workplace place;
  place.edit_config({{"rms_norm_eps", 1e308}});
  expect_error(run_program(place.train()), "rms_norm_eps is 1e+308");
}

TEST(HostileData, DeviceWithoutEndStopsAtTheLongestRow) {
  const Workplace place;
  expect_error(run_program(place.train({"--data", "/dev/zero"})), "the row is longer than");
}

TEST(HostileCheckpoint, NumbersThatAreNotItsOwnPassItOver) {
  const Workplace place;
  const Arguments run = place.train({"--steps", "2", "--save-every", "1"});
  ASSERT_EQ(run_program(run).code, 0);
  const fs::path state = place.root() / "out/checkpoints/step-000002/state.json";
  const json good = json::parse(read_file(state));
  for (const auto& [field, value] : {std::pair<const char*, json>{"step", -1},
                                     {"step", 1e308},
                                     {"step", 18446744073709551615u},
                                     {"step", 1},
                                     {"updates", 1000},
                                     {"total_tokens", -5},
                                     {"metrics_bytes", -1},
                                     {"clock", -1}}) {
    json bad = good;
    bad[field] = value;
    write_file(state, bad.dump());
    Arguments resume = run;
    resume.push_back("--resume");
    const Outcome outcome = run_program(resume);
    EXPECT_EQ(outcome.code, 0) << field << " " << value << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("checkpoint passed over: " + state.string()));
  }
}

TEST(HostileOption, NumbersWhoseProductsWouldOverflowAreRefused) {
  const Workplace place;
  for (const char* option : {"--batch-size", "--max-seq-len", "--grad-accum", "--steps"}) {
    expect_error(run_program(place.train({option, "4611686018427387904"})), option);
  }
}

TEST(HostileConfig, FolderOrPipeIsRefused) {
  const Workplace place;
  ASSERT_EQ(::mkfifo(place.path("pipe").c_str(), 0600), 0);
  expect_error(run_program(place.train({"--config", place.path("pipe")})), "no plain file");
  expect_error(run_program(place.train({"--config", place.root()})), "Is a directory");
}

TEST(HostileTerminal, ErrorsAreOnePrintableLine) {
  const Workplace place;
  const Outcome outcome = run_program(place.train({"--targets", "\x1b[2J\nerror: none"}));
  expect_error(outcome, "\\x1b[2J\\nerror: none");
  EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos);
}

TEST(HostileTerminal, ClosedStandardFilesLeaveTheRunsFilesWhole) {
  const Workplace place;
  const Outcome outcome = run_program(place.train({"--steps", "2", "--json"}), [] {
    for (int fd = 0; fd <= STDERR_FILENO; ++fd) ::close(fd);
  });
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(json_lines(read_file(place.root() / "out/metrics.jsonl")).size(), 2u);
}

}  // namespace
}  // namespace wgrad::cli
