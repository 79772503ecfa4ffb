// What a run is resumed with: the same settings and data, into a folder of its own.

#include <functional>

#include "resume_testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;

TEST(Resume, NeverWritesIntoWhatTheRunReads) {
  const Workplace place;
  const std::string model = place.path("model");
  const std::string other_name = place.path("model/../model/");
  for (const Arguments& more : {Arguments{}, Arguments{"--resume"}}) {
    expect_refused(place,
                   with(place.train({"--method", "full", "--rank", "16", "--out", model}), more),
                   "--model of this run");
    expect_refused(
        place, with(place.train({"--method", "full", "--rank", "16", "--out", other_name}), more),
        "--model of this run");
  }
  fs::copy(straight().root() / "out", place.root() / "adapter", fs::copy_options::recursive);
  expect_refused(
      place,
      {"train", "--model", model, "--data", place.path("train.jsonl"), "--device", "cpu",
       "--init-adapter", place.path("adapter"), "--out", place.path("adapter"), "--resume"},
      "--init-adapter of this run");
}

TEST(Resume, WithoutACheckpointKeepsAFolderThatHoldsAResult) {
  for (const char* file :
       {"adapter_model.safetensors", "adapter_config.json", "adapter_model.bin", "config.json",
        "model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json"}) {
    const Workplace place;
    fs::create_directory(place.root() / "out");
    place.write(std::string("out/") + file, "{}");
    expect_refused(place, place.train({"--steps", "1", "--resume"}),
                   std::string("holds ") + file + " but no whole checkpoint");
  }
  const Workplace place;
  fs::copy(straight().root() / "out", place.root() / "out", fs::copy_options::recursive);
  fs::remove_all(place.root() / "out/checkpoints");
  expect_refused(place, resume_copy(place), "holds adapter_");
  expect_refused(place, resume_copy(place, {"--steps", "2"}), "holds adapter_");
}

TEST(Resume, WithoutACheckpointKeepsAnotherRun) {
  const Workplace place;
  copy_run(place);
  fs::remove_all(place.root() / "out/checkpoints");
  expect_refused(place, resume_copy(place, {"--rank", "3"}), "--rank is \"3\" now");
  expect_refused(place, resume_copy(place, {"--data", place.path("train.jsonl")}), "--data is ");
  const std::string yaml = read_file(place.root() / "out/run.yaml");
  for (const char* broken : {"no map", "[", "rank: {a: 1}"}) {
    place.write("out/run.yaml", broken);
    expect_refused(place, resume_copy(place), "run.yaml");
  }
  fs::remove(place.root() / "out/run.yaml");
  expect_refused(place, resume_copy(place), "holds metrics.jsonl but no run.yaml");
  place.write("out/run.yaml", yaml);
  const Outcome outcome = run_program(resume_copy(place));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  expect_same_result(place);
}

TEST(Resume, TakesAnotherWayToWriteTheSamePath) {
  const Workplace place;
  copy_run(place);
  const std::string root = straight().root().string();
  const Outcome outcome = run_program(resume_copy(
      place, {"--model", root + "/./model/", "--data", root + "/model/../train.jsonl"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  expect_same_result(place);
  // The model's bytes are the same, but it is another folder.
  expect_refused(place, resume_copy(place, {"--model", place.path("model")}), "--model is ");
}

TEST(Resume, RefusesAChangedOptionByName) {
  const Workplace place;
  copy_run(place);
  const auto before = place.snapshot();
  const std::pair<const char*, const char*> changes[] = {
      {"--lr", "0.5"},    {"--rank", "3"},          {"--steps", "41"},      {"--seed", "9"},
      {"--dropout", "0"}, {"--schedule", "linear"}, {"--targets", "q_proj"}};
  for (const auto& [option, value] : changes) {
    const Outcome outcome = run_program(resume_copy(place, {option, value}));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(std::string(option) + " is \"" + value + "\" now"));
    EXPECT_TRUE(place.snapshot() == before) << option;
  }
}

constexpr const char* kLastState = "out/checkpoints/step-000040/state.json";

/// Changes the settings that the newest checkpoint of a copied run has saved.
void edit_saved(const Workplace& place, const std::function<void(nlohmann::json&)>& change) {
  auto state = nlohmann::json::parse(read_file(place.root() / kLastState));
  change(state.at("settings"));
  place.write(kLastState, state.dump());
}

TEST(Resume, OfARunFromBeforeAnOptionTakesItsDefault) {
  const Workplace place;
  copy_run(place);
  edit_saved(place, [](nlohmann::json& settings) {
    for (const char* name : {"dora", "target-regex", "rank-pattern", "beta1", "seed", "steps"}) {
      ASSERT_EQ(settings.erase(name), 1u) << name;
    }
  });
  expect_refused(place, resume_copy(place),
                 "--steps is \"40\" now; the run was started with \"0\"");
  edit_saved(place, [](nlohmann::json& settings) { settings["steps"] = "40"; });
  expect_refused(place, resume_copy(place, {"--dora"}),
                 "--dora is \"true\" now; the run was started with \"false\"");
  const Outcome outcome = run_program(resume_copy(place));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  expect_same_result(place);
}

TEST(Resume, WithoutACheckpointTakesDefaultsToo) {
  const Workplace place;
  copy_run(place);
  fs::remove_all(place.root() / "out/checkpoints");
  const std::string yaml = read_file(place.root() / "out/run.yaml");
  std::string older = yaml;
  for (const std::string line : {"dora: false\n", "rslora: false\n", "beta1: 0.9\n"}) {
    ASSERT_NE(older.find(line), std::string::npos) << line;
    older.erase(older.find(line), line.size());
  }
  place.write("out/run.yaml", yaml + "sharpness: 3\n");
  expect_refused(place, resume_copy(place), "--sharpness \"3\"; this version of wgrad has no such");
  place.write("out/run.yaml", older);
  const Outcome outcome = run_program(resume_copy(place));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  expect_same_result(place);
}

TEST(Resume, RefusesAnOptionOfANewerVersionByName) {
  const Workplace place;
  copy_run(place);
  edit_saved(place, [](nlohmann::json& settings) { settings["sharpness"] = "3"; });
  expect_refused(place, resume_copy(place), "--sharpness \"3\"; this version of wgrad has no such");
}

TEST(Resume, RefusesChangedData) {
  const Workplace place;
  const Arguments run = place.train({"--steps", "2"});
  ASSERT_EQ(run_program(run).code, 0);
  place.write("train.jsonl", read_file(place.root() / "train.jsonl") + "{\"text\": \"w5 w6\"}\n");
  const auto before = place.snapshot();
  const Outcome outcome = run_program(with(run, {"--resume"}));
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("data has changed"));
  EXPECT_TRUE(place.snapshot() == before);
}

}  // namespace
}  // namespace wgrad::cli
