#include "text/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "text/text_test_support.h"

namespace wgrad::text {
namespace {

using testing::HasSubstr;

TEST(Pattern, MatchesWholeTexts) {
  const Pattern pattern(R"(model\.layers\.\d+\.mlp\.(?P<side>up|down)_proj|lm_head)", "here");
  EXPECT_TRUE(pattern.matches("model.layers.12.mlp.up_proj"));
  EXPECT_TRUE(pattern.matches("lm_head"));
  for (const char* other : {"", "mlp.up_proj", "model.layers.1.mlp.up_proj.x", "xlm_head"}) {
    EXPECT_FALSE(pattern.matches(other)) << other;
  }
  EXPECT_FALSE(Pattern("a|b", "here").matches("ab"));
  EXPECT_FALSE(Pattern(".*", "here").matches("\xff"));
}

TEST(Pattern, NamesWhatItCannotRead) {
  for (const char* wrong : {"(", "a)|(b", "(?!q_proj).*", "(a)\\1", "\xff", "(?:a{1000}){1000}"}) {
    EXPECT_THAT(input_error_of([&] { Pattern(wrong, "target_modules"); }),
                HasSubstr("target_modules"))
        << wrong;
  }
}

TEST(Pattern, TakesNoLongerForAnExpressionThatBacktracks) {
  EXPECT_FALSE(Pattern("(a*)*b", "here").matches(std::string(100'000, 'a')));
}

}  // namespace
}  // namespace wgrad::text
