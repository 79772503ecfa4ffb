#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class GenerateCommand : public ::testing::Test {
 protected:
  GenerateCommand() {
    place_.set_template(
        "{% for m in messages %}{% if m.role == 'user' %}w10 {{ m.content }} w11 "
        "{% else %}w13 {{ m.content }} w12 {% endif %}{% endfor %}");
  }

  Outcome run(const Arguments& more, const std::string& input = {}) const {
    Arguments all = {"generate",      "--model", place_.path("model"), "--device", "cpu",
                     "--temperature", "0",       "--max-tokens",       "6"};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all, {}, input);
  }
  nlohmann::json json(Arguments more, const std::string& input = {}) const {
    more.push_back("--json");
    const Outcome outcome = run(more, input);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  }

  Workplace place_;
  const std::string adapter_ = WGRAD_TEST_DATA "/models/llama3/adapter";
};

TEST_F(GenerateCommand, PrintsIdsAndTextAloneAndItsSpeedBeside) {
  const Outcome outcome = run({"--prompt", "w5", "--json"});
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json.size(), 2u);
  EXPECT_EQ(json.at("ids").size(), 6u);
  EXPECT_TRUE(json.at("text").is_string());
  EXPECT_THAT(outcome.err, HasSubstr("prompt 3 tokens, "));
  EXPECT_THAT(outcome.err, HasSubstr("; answer 6 tokens, "));
}

TEST_F(GenerateCommand, ReadsThePromptFromStandardInput) {
  EXPECT_EQ(json({"--prompt", "-"}, "w5 w6\n"), json({"--prompt", "w5 w6"}));
}

TEST_F(GenerateCommand, BeginsWithTheSystemMessage) {
  EXPECT_EQ(json({"--prompt", "w5", "--system", "w7"}),
            json({"--raw", "--prompt", "w13 w7 w12 w10 w5 w11 "}));
  const Outcome outcome = run({"--raw", "--prompt", "w5", "--system", "w7"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--system: given with --raw"));
}

TEST_F(GenerateCommand, CutsTheTextBeforeAStopString) {
  const nlohmann::json whole = json({"--prompt", "w5"});
  const std::string text = whole.at("text");
  // From the middle of one word into the next: across the border of tokens.
  const size_t border = text.find(' ', text.size() / 2);
  ASSERT_NE(border, std::string::npos);
  const std::string stop = text.substr(border - 1, 3);
  const size_t begin = text.find(stop);
  const nlohmann::json cut = json({"--prompt", "w5", "--stop", "never", "--stop", stop});
  EXPECT_EQ(cut.at("text"), text.substr(0, begin));
  EXPECT_LT(cut.at("ids").size(), whole.at("ids").size() + 1);
  EXPECT_EQ(run({"--prompt", "w5", "--stop", stop}).out, text.substr(0, begin) + "\n");
  EXPECT_EQ(run({"--prompt", "w5", "--stop", ""}).code, 2);
}

TEST_F(GenerateCommand, ComparesAdaptersSideBySide) {
  const std::string other = place_.path("other");
  fs::copy(adapter_, other);
  const nlohmann::json both = json({"--prompt", "w5", "--adapter", adapter_, "--adapter", other});
  const nlohmann::json one = json({"--prompt", "w5", "--adapter", adapter_});
  EXPECT_EQ(one.size(), 2u);
  ASSERT_EQ(both.at("answers").size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const nlohmann::json& answer = both.at("answers")[static_cast<size_t>(i)];
    EXPECT_EQ(answer.at("adapter"), i == 0 ? adapter_ : other);
    EXPECT_EQ(answer.at("ids"), one.at("ids"));
    EXPECT_EQ(answer.at("text"), one.at("text"));
  }
  EXPECT_NE(one, json({"--prompt", "w5"}));
  const std::string text = one.at("text");
  EXPECT_EQ(run({"--prompt", "w5", "--adapter", adapter_, "--adapter", other}).out,
            "== " + adapter_ + "\n" + text + "\n== " + other + "\n" + text + "\n");
}

TEST_F(GenerateCommand, SaysThatTheContextIsFull) {
  std::string prompt;
  for (int i = 0; i < 122; ++i) prompt += "w5 ";
  const Outcome outcome = run({"--raw", "--prompt", prompt, "--max-tokens", "50"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the model's context is full"));
}

TEST_F(GenerateCommand, ARepetitionPenaltyChangesTheText) {
  const nlohmann::json plain = json({"--prompt", "w5"});
  const nlohmann::json penalised = json({"--prompt", "w5", "--repetition-penalty", "50"});
  EXPECT_NE(plain, penalised);
  EXPECT_EQ(run({"--prompt", "w5", "--repetition-penalty", "0"}).code, 2);
  EXPECT_EQ(run({"--prompt", "w5", "--min-p", "1.5"}).code, 2);
}

}  // namespace
}  // namespace wgrad::cli
