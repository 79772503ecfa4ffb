#include "wgrad/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace wgrad {
namespace {

using ::testing::EndsWith;

TEST(Error, ReadsWhereSeenExpectedAction) {
  EXPECT_STREQ(input_error("file", "seen", "expected", "act").what(), "file: seen; expected; act");
  EXPECT_STREQ(input_error("file", "seen", {}, "act").what(), "file: seen; act");
  EXPECT_STREQ(input_error("file", "seen").what(), "file: seen");
}

TEST(Error, OfInputIsOneLineThatATerminalCanShow) {
  EXPECT_STREQ(input_error("a\nb", "\x1b[2J\t\r", "\x7f",
                           "\xc2\x9b"
                           "2J")
                   .what(),
               "a\\nb: \\x1b[2J\\t\\x0d; \\x7f; \\x9b2J");
}

TEST(Error, OfInputKeepsOtherCharacters) {
  EXPECT_STREQ(input_error("modèle", "ключ 鍵 \xc2\xa0").what(), "modèle: ключ 鍵 \xc2\xa0");
}

TEST(Error, OfInputCutsWhatIsLongBetweenCharacters) {
  std::string name(1199, 'n');
  name += "鍵" + std::string(1000000, 'n');
  const std::string text = input_error("file", name, "expected").what();
  EXPECT_EQ(text, "file: " + std::string(1199, 'n') + "...; expected");
}

TEST(Error, WhileRunningKeepsItsLines) {
  EXPECT_THAT(runtime_failure("shader", "line 1\nline 2").what(), EndsWith("line 1\nline 2"));
}

}  // namespace
}  // namespace wgrad
