#include <algorithm>
#include <cstdlib>

#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kGreen = "\x1b[32m";

class DataTest : public ::testing::Test {
 protected:
  DataTest() {
    place_.write("a.jsonl", R"({"prompt": "w1 w2", "completion": " w3"})"
                            "\n"
                            R"({"text": "w4"})"
                            "\n");
    place_.write("b.jsonl", R"({"text": "w5 w6 w7 w8 w9"})"
                            "\n");
  }

  Arguments command(const std::string& data, const Arguments& more = {}) const {
    Arguments all = {"data", "--model", place_.path("model"), "--data", data};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string both() const { return place_.path("a.jsonl") + "," + place_.path("b.jsonl"); }
  Outcome run(const std::string& data, const Arguments& more = {},
              const ChildSetup& setup = {}) const {
    Outcome outcome = run_program(command(data, more), setup);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }

  Workplace place_;
};

TEST_F(DataTest, CountsRowsTokensAndLengths) {
  const Outcome outcome = run(both(), {"--stats", "--json"});
  const auto rows = json_lines(run(both(), {"--json"}).out);
  const auto stats = json_lines(outcome.out);
  ASSERT_EQ(stats.size(), 1u);
  ASSERT_EQ(rows.size(), 3u);
  size_t tokens = 0, longest = 0, counted = 0;
  for (const auto& row : rows) {
    tokens += row["ids"].size();
    longest = std::max(longest, row["ids"].size());
    for (size_t i = 1; i < row["labels"].size(); ++i) counted += row["labels"][i] != -100;
  }
  EXPECT_EQ(stats[0]["rows"], 3);
  EXPECT_EQ(stats[0]["tokens"], tokens);
  EXPECT_EQ(stats[0]["counted_tokens"], counted);
  EXPECT_EQ(stats[0]["length"]["longest"], longest);
  size_t in_bins = 0;
  for (const auto& bin : stats[0]["histogram"]) in_bins += bin["rows"].get<size_t>();
  EXPECT_EQ(in_bins, 3u);
  const Outcome text = run(both(), {"--stats", "--max-seq-len", "3"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("3 rows"), HasSubstr("cut to 3"), HasSubstr("###")));
}

TEST_F(DataTest, MarksWhatCountsWithAndWithoutColour) {
  const auto no_colour = [] { setenv("NO_COLOR", "1", 1); };
  const std::string a = place_.path("a.jsonl");
  EXPECT_THAT(run(a).out, AllOf(HasSubstr("«"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(run(a, {"--color", "never"}).out, AllOf(HasSubstr("«"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(run(a, {"--color", "always"}, no_colour).out,
              AllOf(HasSubstr(kGreen), Not(HasSubstr("«"))));
  EXPECT_EQ(run_program(command(a, {"--color", "blue"})).code, 2);
}

TEST_F(DataTest, NamesTheFileOfARowWhereThereAreSeveral) {
  EXPECT_THAT(run(both()).out, AllOf(HasSubstr("a.jsonl:2: "), HasSubstr("b.jsonl:1: ")));
  EXPECT_THAT(run(place_.path("a.jsonl")).out, HasSubstr("--- row 2: "));
  place_.write("b.jsonl", "{\"text\": 1}\n");
  const Outcome bad = run_program(command(both()));
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("b.jsonl:1: \"text\" is number"));
}

TEST_F(DataTest, TakesAListOfFilesFromAnOptionsFile) {
  place_.write("run.yaml",
               "data:\n  - " + place_.path("a.jsonl") + "\n  - " + place_.path("b.jsonl") + "\n");
  const Outcome outcome = run_program({"data", "--model", place_.path("model"), "--config",
                                       place_.path("run.yaml"), "--stats", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json_lines(outcome.out).at(0)["rows"], 3);
}

TEST_F(DataTest, ShowsControlCharactersThatATerminalWouldObey) {
  const fs::path text = fs::path(WGRAD_TEST_DATA) / "text/qwen2_style";
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy(text / file, place_.root() / file);
  }
  place_.write("c.jsonl", R"({"text": "a\u001b[2J\u0000\u009b\u007fb\tc"})"
                          "\n");
  const Outcome outcome =
      run_program({"data", "--model", place_.path("."), "--data", place_.path("c.jsonl")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("«\u241b[2J\u2400\ufffd\u2421b\tc"));
}

TEST_F(DataTest, IsSaidBeforeARunTrains) {
  const Outcome outcome = run_program(place_.train({"--steps", "1", "--data", both()}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("train   3 rows"), HasSubstr("length: median")));
}

TEST_F(DataTest, ShowsRowsWholeAndCountsThemAsTrainCutsThem) {
  std::string words;
  for (int i = 0; i < 300; ++i) words += " w" + std::to_string(5 + i % 20);
  place_.write("long.jsonl", "{\"text\": \"" + words + "\"}\n{\"text\": \"w5 w6\"}\n");
  const std::string data = place_.path("long.jsonl");
  const auto stats = json_lines(run(data, {"--stats", "--json"}).out).at(0);
  const Outcome planned = run_program(place_.train({"--data", data, "--plan", "--json"}));
  ASSERT_EQ(planned.code, 0) << planned.err;
  const auto plan = json_lines(planned.out).at(0);
  EXPECT_EQ(stats["cut"], 1);
  EXPECT_EQ(stats["tokens"], plan["tokens_per_epoch"]);
  EXPECT_EQ(stats["counted_tokens"], plan["counted_tokens_per_epoch"]);
  const Outcome whole = run(data, {"--json"});
  EXPECT_GE(json_lines(whole.out).at(0)["ids"].size(), 300u);
  EXPECT_THAT(whole.err, HasSubstr("1 row longer than "));
  const Outcome shown = run(data, {});
  EXPECT_THAT(shown.out, HasSubstr("301 tokens, 300 counted"));
  EXPECT_THAT(shown.err, HasSubstr("1 row longer than "));
  EXPECT_EQ(json_lines(run(data, {"--json", "--max-seq-len", "7"}).out).at(0)["ids"].size(), 7u);
  EXPECT_EQ(json_lines(run(data, {"--stats", "--json", "--max-seq-len", "0"}).out).at(0)["cut"], 0);
}

}  // namespace
}  // namespace wgrad::cli
