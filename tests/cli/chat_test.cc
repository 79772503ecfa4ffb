#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <sstream>

#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::HasSubstr;

class ChatTest : public ::testing::Test {
 protected:
  ChatTest() {
    place_.set_template(
        "{% for m in messages %}{% if m.role == 'user' %}w10 {{ m.content }} w11 "
        "{% else %}{{ m.content }} w12 {% endif %}{% endfor %}");
  }

  Arguments command(const std::string& name, const Arguments& more = {}) const {
    Arguments all = {name,       "--model",      place_.path("model"),
                     "--device", "cpu",          "--temperature",
                     "0",        "--max-tokens", "6"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// What `wgrad generate` prints, a newline after it.
  std::string generated(const Arguments& prompt) const {
    const Outcome outcome = run_program(command("generate", prompt));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  }

  Workplace place_;
};

TEST_F(ChatTest, AnswersEachLineWithTheConversationSoFarAndEndsWithTheInput) {
  const Outcome chat = run_program(command("chat"), {}, "w5\nw6");
  EXPECT_EQ(chat.code, 0) << chat.err;
  const std::string first = generated({"--prompt", "w5"});
  const std::string said = first.substr(0, first.size() - 1);
  const std::string second =
      generated({"--raw", "--prompt", "w10 w5 w11 " + said + " w12 w10 w6 w11 "});
  EXPECT_EQ(chat.out, first + second);
  EXPECT_NE(second, generated({"--prompt", "w6"}));
}

TEST_F(ChatTest, BeginsAgainAndQuitsOnCommand) {
  const Outcome chat = run_program(command("chat"), {}, "w5\n\n/new\nw6\n/quit\nw7\n");
  EXPECT_EQ(chat.code, 0) << chat.err;
  EXPECT_EQ(chat.out, generated({"--prompt", "w5"}) + generated({"--prompt", "w6"}));
}

TEST_F(ChatTest, CommandsForgetAndSetTheSystemMessage) {
  const Outcome chat = run_program(
      command("chat"), {}, "w5\n/reset\nw6\n/system w7\nw5\n/system\n/help\n/nonsense x\n//w8\n");
  EXPECT_EQ(chat.code, 0) << chat.err;
  EXPECT_EQ(chat.out, generated({"--prompt", "w5"}) + generated({"--prompt", "w6"}) +
                          generated({"--prompt", "w5", "--system", "w7"}) +
                          generated({"--prompt", "/w8"}));
  EXPECT_THAT(chat.err, HasSubstr("/system TEXT"));
  EXPECT_THAT(chat.err, HasSubstr("/nonsense is no command"));
  EXPECT_THAT(chat.err, HasSubstr("tokens/s"));
}

TEST_F(ChatTest, EachAdapterHasItsOwnConversation) {
  const std::string adapter = WGRAD_TEST_DATA "/models/llama3/adapter";
  const std::string other = place_.path("other");
  fs::copy(adapter, other);
  const std::string input = "w5\nw6\n";
  const Outcome one = run_program(command("chat", {"--adapter", adapter}), {}, input);
  const Outcome both =
      run_program(command("chat", {"--adapter", adapter, "--adapter", other}), {}, input);
  EXPECT_EQ(both.code, 0) << both.err;
  std::string expected;
  std::istringstream answers(one.out);
  for (std::string line; std::getline(answers, line);) {
    expected += "== " + adapter + "\n" + line + "\n== " + other + "\n" + line + "\n";
  }
  EXPECT_EQ(both.out, expected);
}

TEST_F(ChatTest, GoesOnAfterAMessageThatDoesNotFitTheContext) {
  std::string longest;
  for (int i = 0; i < 140; ++i) longest += "w5 ";
  const Outcome chat = run_program(command("chat"), {}, longest + "\nw5\n");
  EXPECT_EQ(chat.code, 0) << chat.err;
  EXPECT_THAT(chat.err, HasSubstr("and the model's context holds 128"));
  EXPECT_EQ(chat.out, generated({"--prompt", "w5"}));
}

TEST_F(ChatTest, RefusesALineWithoutEnd) {
  const Outcome chat = run_program(command("chat"), {}, std::string(17 << 20, 'w'));
  EXPECT_EQ(chat.code, 2);
  EXPECT_THAT(chat.err, HasSubstr("error: standard input: a line is longer than 16 MiB"));
}

TEST_F(ChatTest, RefusesBytesThatAreNoText) {
  const Outcome chat = run_program(command("chat"), {}, "w5 \xff\n");
  EXPECT_EQ(chat.code, 2);
  EXPECT_THAT(chat.err, HasSubstr("UTF-8"));
}

TEST_F(ChatTest, SaysThatAModelHasNoTemplate) {
  const Workplace plain;
  const Outcome chat =
      run_program({"chat", "--model", plain.path("model"), "--device", "cpu"}, {}, "w5\n");
  EXPECT_EQ(chat.code, 2);
  EXPECT_THAT(chat.err, HasSubstr("no chat template"));
}

class ChatSignal : public ChatTest, public ::testing::WithParamInterface<int> {};

TEST_P(ChatSignal, EndsIt) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Child child(command("chat"), [&ends] { ::dup2(ends[0], STDIN_FILENO); });
  ASSERT_EQ(::write(ends[1], "w5\n", 3), 3);
  while (!child.ended() && child.out().find('\n') == std::string::npos) usleep(500);
  // The first may still meet the answer.
  while (!child.ended()) {
    child.signal(GetParam());
    usleep(2000);
  }
  EXPECT_EQ(child.wait().code, 128 + GetParam());
  ::close(ends[0]);
  ::close(ends[1]);
}

INSTANTIATE_TEST_SUITE_P(Both, ChatSignal, ::testing::Values(SIGINT, SIGTERM));

}  // namespace
}  // namespace wgrad::cli
