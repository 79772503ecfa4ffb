#include "text/stop_strings.h"

#include <gtest/gtest.h>

namespace wgrad::text {
namespace {

/// What is shown of the pieces, a | after each.
std::string shown(std::vector<std::string> stops, const std::vector<std::string>& pieces) {
  StopStrings filter(std::move(stops));
  std::string out;
  for (const std::string& piece : pieces) {
    out += filter.push(piece) + "|";
    if (filter.stopped()) return out + "stop";
  }
  return out + filter.finish();
}

TEST(StopStrings, PassATextWithoutThem) {
  EXPECT_EQ(shown({}, {"one", " two"}), "one| two|");
  EXPECT_EQ(shown({"###"}, {"one", " two"}), "one| two|");
}

TEST(StopStrings, CutBeforeThem) {
  EXPECT_EQ(shown({"###"}, {"one###two"}), "one|stop");
  EXPECT_EQ(shown({"b", "a"}, {"xab"}), "x|stop");
  EXPECT_EQ(shown({"one"}, {"one"}), "|stop");
}

TEST(StopStrings, AreFoundAcrossPieces) {
  EXPECT_EQ(shown({"\nUser:"}, {"hi\n", "Us", "er", ": x"}), "hi||||stop");
}

TEST(StopStrings, GiveBackWhatOnlyBeganLikeOne) {
  EXPECT_EQ(shown({"abc"}, {"xab", "abd", "ab"}), "x|ababd||ab");
  EXPECT_EQ(shown({"aab"}, {"aa", "a", "b"}), "|a||stop");
}

TEST(StopStrings, HoldBackForTheLongestBeginning) {
  EXPECT_EQ(shown({"bz", "abcd"}, {"xab", "c", "e"}), "x||abce|");
}

}  // namespace
}  // namespace wgrad::text
