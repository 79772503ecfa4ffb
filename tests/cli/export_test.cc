#include "testing.h"

namespace wgrad::cli {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string tiny_gguf() { return WGRAD_TEST_DATA "/models/llama3.gguf"; }

TEST(Export, WritesAModelThatCanBeReadAgain) {
  const Workplace place;
  const std::string out = place.path("out.gguf");
  const Outcome exported =
      run_program({"export", "--model", tiny_gguf(), "--out", out, "--type", "q8_0"});
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.out, IsEmpty());
  EXPECT_THAT(exported.err, HasSubstr("note: stored as F16 rather than Q8_0"));
  EXPECT_THAT(exported.err, HasSubstr("wrote " + out));
  const std::string merged = place.path("merged");
  const Outcome again = run_program({"merge", "--model", out, "--adapter",
                                     WGRAD_TEST_DATA "/models/llama3/adapter", "--out", merged});
  EXPECT_EQ(again.code, 0) << again.err;
}

TEST(Export, WritesAnAdapterAlone) {
  const Workplace place;
  const std::string adapter = WGRAD_TEST_DATA "/models/llama3/adapter";
  const Outcome alone = run_program({"export", "--model", place.path("model"), "--adapter", adapter,
                                     "--adapter-only", "--out", place.path("a.gguf")});
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(read_file(place.path("a.gguf")).substr(0, 4), "GGUF");
}

TEST(Export, RefusesWithTheReasonAndWritesNothing) {
  const Workplace place;
  const auto before = place.snapshot();
  const auto refusal = [&](const Arguments& more) {
    Arguments all = {"export", "--model", place.path("model"), "--out", place.path("x.gguf")};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run_program(all);
    EXPECT_EQ(outcome.code, 2);
    return outcome.err;
  };
  EXPECT_THAT(refusal({}), HasSubstr("the tokenizer's model is WordLevel"));
  EXPECT_THAT(refusal({"--adapter-only"}), HasSubstr("--adapter-only: there is no --adapter"));
  EXPECT_THAT(refusal({"--type", "q3_k"}), HasSubstr("q3_k"));
  EXPECT_THAT(refusal({"--adapter", place.path("no")}), HasSubstr("no such folder"));
  EXPECT_EQ(place.snapshot(), before);
}

}  // namespace
}  // namespace wgrad::cli
