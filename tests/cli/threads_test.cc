#include <cstdlib>

#include "testing.h"

namespace wgrad::cli::testing {
namespace {

using ::testing::HasSubstr;

// libgomp prints its settings when it starts, and again in the program that was started anew.
TEST(Threads, WaitBriefly) {
  const Outcome outcome = run_program({"eval", "--model", "absent", "--data", "absent"}, [] {
    ::unsetenv("OMP_WAIT_POLICY");
    ::setenv("OMP_DISPLAY_ENV", "verbose", 1);
  });
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("GOMP_SPINCOUNT = '10000'"));
}

TEST(Threads, WaitAsTheUserSays) {
  const Outcome outcome = run_program({"eval", "--model", "absent", "--data", "absent"}, [] {
    ::setenv("OMP_DISPLAY_ENV", "verbose", 1);
    ::setenv("GOMP_SPINCOUNT", "77", 1);
  });
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("GOMP_SPINCOUNT = '77'"));
  EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("'10000'")));
}

}  // namespace
}  // namespace wgrad::cli::testing
