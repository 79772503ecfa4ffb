#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>

#include "testing.h"

namespace wgrad::cli::testing {

using ::testing::HasSubstr;

inline const Arguments kRun = {"--steps",   "40",  "--save-every", "3",
                               "--dropout", "0.1", "--batch-size", "3"};

inline Arguments with(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// A run that nothing disturbs, made once: what the others must equal.
inline const Workplace& straight() {
  static const Workplace place;
  static const Outcome outcome = run_program(place.train(kRun));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return place;
}

inline std::vector<std::array<double, 4>> steps_of(const fs::path& out) {
  std::vector<std::array<double, 4>> steps;
  for (const auto& line : json_lines(read_file(out / "metrics.jsonl"))) {
    steps.push_back({line.at("step"), line.at("loss"), line.at("grad_norm"), line.at("lr")});
  }
  return steps;
}

inline void expect_same_result(const Workplace& place, const Workplace& whole = straight()) {
  for (const char* file :
       {"out/adapter_model.safetensors", "out/checkpoints/step-000040/state.safetensors"}) {
    EXPECT_TRUE(read_file(place.root() / file) == read_file(whole.root() / file)) << file;
  }
  EXPECT_EQ(steps_of(place.root() / "out"), steps_of(whole.root() / "out"));
  for (const auto& entry : fs::recursive_directory_iterator(place.root() / "out")) {
    EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
  }
}

inline size_t lines_of(const fs::path& path) {
  const std::string text = read_file(path);
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// Waits until the run has logged `lines` steps, or has ended.
inline void wait_for_steps(Child& child, const Workplace& place, size_t lines) {
  while (!child.ended() && lines_of(place.root() / "out/metrics.jsonl") < lines) usleep(500);
}

/// A copy of the undisturbed run without its result, as if it had been stopped at step 40.
inline void copy_run(const Workplace& place) {
  fs::copy(straight().root() / "out", place.root() / "out", fs::copy_options::recursive);
  fs::remove(place.root() / "out/adapter_model.safetensors");
  fs::remove(place.root() / "out/adapter_config.json");
}

inline Arguments resume_copy(const Workplace& place, const Arguments& more = {}) {
  // The copied checkpoints name the model and data of the run that they come from.
  return straight().train(with(with(kRun, {"--out", place.path("out"), "--resume"}), more));
}

/// Resumes into a folder that must stay as it is.
inline void expect_refused(const Workplace& place, const Arguments& run, const std::string& text) {
  const auto before = place.snapshot();
  const Outcome outcome = run_program(run);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(text));
  EXPECT_THAT(outcome.err, HasSubstr("--out"));
  EXPECT_TRUE(place.snapshot() == before) << text;
}

}  // namespace wgrad::cli::testing
