#include <algorithm>

#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// What the program says as it refuses with exit code 2.
std::string refusal(const Arguments& arguments) {
  const Outcome outcome = run_program(arguments);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  return outcome.err;
}

constexpr const char* kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";

TEST(Remedies, OfAModelThatIsQuantisedAlready) {
  const Workplace place;
  place.edit_config({{"quantization_config", {{"quant_method", "awq"}, {"bits", 4}}}});
  EXPECT_THAT(
      refusal(place.train()),
      AllOf(HasSubstr("quantised already"),
            HasSubstr("fetch the model that this one was made from"), HasSubstr("--method qlora")));
}

TEST(Remedies, OfAFolderThatHoldsAnotherThing) {
  const Workplace place;
  fs::create_directory(place.path("ggufs"));
  place.write("ggufs/b.gguf", "GGUF");
  place.write("ggufs/a.gguf", "GGUF");
  EXPECT_THAT(refusal(place.train({"--model", place.path("ggufs")})),
              HasSubstr("give --model " + place.path("ggufs/a.gguf")));
  const std::string adapter = WGRAD_TEST_DATA "/models/llama3/adapter";
  EXPECT_THAT(refusal(place.train({"--model", adapter})), HasSubstr("this folder as --adapter"));
  const Arguments eval = {
      "eval",     "--model", place.path("model"), "--data", place.path("train.jsonl"),
      "--device", "cpu",     "--adapter"};
  const auto with_adapter = [&](const std::string& path) {
    Arguments all = eval;
    all.push_back(path);
    return refusal(all);
  };
  EXPECT_THAT(with_adapter(place.path("model")), HasSubstr("give it as --model"));
  EXPECT_THAT(with_adapter(place.path("ggufs/a.gguf")), HasSubstr("llama.cpp's --lora"));
  EXPECT_THAT(with_adapter(place.path("ggufs")), HasSubstr("has no adapter_config.json"));
}

TEST(Remedies, OfANameOfTheHub) {
  const Workplace place;
  EXPECT_THAT(
      refusal(place.train({"--model", "some-org/Model-1.5B"})),
      AllOf(HasSubstr("wgrad downloads nothing"),
            HasSubstr("huggingface-cli download some-org/Model-1.5B --local-dir Model-1.5B")));
  EXPECT_THAT(refusal(place.train({"--model", "./some-org/model"})), Not(HasSubstr("download")));
}

TEST(Remedies, OfAGitLfsPointer) {
  const Workplace place;
  place.write("m.gguf", kPointer);
  place.write("model/model.safetensors", kPointer);
  place.write("rows.jsonl", kPointer);
  const auto says_so = AllOf(HasSubstr("this is a Git LFS pointer"), HasSubstr("git lfs pull"));
  EXPECT_THAT(refusal(place.train()), says_so);
  EXPECT_THAT(refusal(place.train({"--model", place.path("m.gguf")})), says_so);
  EXPECT_THAT(refusal(place.train({"--data", place.path("rows.jsonl")})), says_so);
  place.write("model/tokenizer.json", kPointer);
  EXPECT_THAT(refusal(place.train()), says_so);
}

TEST(Remedies, OfDataInAnotherFormat) {
  const Workplace place;
  const auto with_data = [&](const std::string& name, const std::string& content) {
    place.write(name, content);
    return refusal(place.train({"--data", place.path(name)}));
  };
  EXPECT_THAT(with_data("a.csv", "text,label\nx,y\n"),
              AllOf(HasSubstr("a table of text"), HasSubstr("pandas.read_csv(")));
  EXPECT_THAT(with_data("a.parquet", "PAR1\x15\x04"),
              AllOf(HasSubstr("a Parquet file"), HasSubstr("pandas.read_parquet(")));
  EXPECT_THAT(with_data("a.txt", "Once upon a time\n"),
              AllOf(HasSubstr("plain text"), HasSubstr("{\"text\": \"...\"}")));
  place.write("lines.txt", "{\"text\": \"w5 w6\"}\n");
  EXPECT_EQ(run_program(place.train({"--data", place.path("lines.txt"), "--plan"})).code, 0);
}

TEST(Remedies, OfADeviceGivenByItsNumber) {
  const Workplace place;
  EXPECT_THAT(refusal(place.train({"--device", "gpu:0"})),
              AllOf(HasSubstr("no such adapter"), HasSubstr("by a part of their name")));
}

TEST(Remedies, OfARunThatDoesNotFit) {
  const Workplace place;
  std::string text;
  for (int i = 0; i < 60; ++i) text += " w" + std::to_string(5 + i % 20);
  place.write("long.jsonl", "{\"text\": \"" + text + "\"}\n{\"text\": \"w5 w6\"}\n");
  Arguments plan = place.train(
      {"--data", place.path("long.jsonl"), "--plan", "--device", "auto", "--device-memory"});
  const auto with_memory = [&](const std::string& size) {
    Arguments all = plan;
    all.push_back(size);
    return run_program(all);
  };
  // Enough for one thing: what fits must be offered with options that fit when they are given.
  EXPECT_THAT(with_memory("8").err, HasSubstr("did you mean 8GB?"));
  EXPECT_EQ(with_memory("8").code, 2);
  EXPECT_EQ(with_memory("1GB").code, 0);
  plan.insert(plan.end() - 1, {"--device", "cpu"});
  EXPECT_THAT(with_memory("1GB").err, HasSubstr("leave --device out"));
}

TEST(Remedies, OfAFileNameForAMergedModel) {
  const Workplace place;
  EXPECT_THAT(refusal({"merge", "--model", place.path("model"), "--adapter",
                       WGRAD_TEST_DATA "/models/llama3/adapter", "--out", place.path("x.gguf")}),
              HasSubstr("wgrad export"));
  EXPECT_FALSE(fs::exists(place.path("x.gguf")));
}

TEST(Remedies, OfSeveralBadRowsAreListedAtOnce) {
  const Workplace place;
  std::string rows;
  for (int i = 0; i < 7; ++i) rows += "{\"question\": \"w5\"}\n{\"text\": \"w5 w6\"}\n";
  place.write("rows.jsonl", rows);
  const Arguments data = {
      "data", "--model", place.path("model"), "--data", place.path("rows.jsonl"), "--stats"};
  EXPECT_THAT(refusal(data),
              AllOf(HasSubstr("7 bad rows, the first 5: (1) "), HasSubstr("rows.jsonl:1: the row"),
                    HasSubstr("(5) "), HasSubstr("rows.jsonl:9: "), Not(HasSubstr("rows.jsonl:11")),
                    HasSubstr("--skip-bad-rows")));
  Arguments skipping = data;
  skipping.push_back("--skip-bad-rows");
  const Outcome skipped = run_program(skipping);
  EXPECT_EQ(skipped.code, 0);
  EXPECT_THAT(skipped.err, HasSubstr("7 bad rows skipped, the first 5: (1) "));
}

TEST(Remedies, ARowOfAListIsNamedByItsPlaceInIt) {
  const Workplace place;
  place.write("list.json", "[{\"text\": \"w5 w6\"}, {\"text\": \"w7\"}, {\"question\": \"w5\"}]");
  EXPECT_THAT(refusal(place.train({"--data", place.path("list.json")})),
              HasSubstr("list.json, item 3: the row has the keys"));
}

TEST(Remedies, OfABenchOfNothing) {
  const Outcome outcome = run_program({"bench", "--device", "cpu", "--only", "nosuch", "--json"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("nosuch"), HasSubstr("attention_backward")));
}

}  // namespace
}  // namespace wgrad::cli
