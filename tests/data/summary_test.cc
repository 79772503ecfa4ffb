#include "data/summary.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "data_test_support.h"

namespace wgrad::data {
namespace {

Summary of_lengths(const std::map<int64_t, int64_t>& lengths) {
  Summary summary;
  summary.lengths = lengths;
  for (const auto& [length, rows] : lengths) summary.rows += rows;
  return summary;
}

using Bins = std::vector<std::array<int64_t, 3>>;

Bins bins_of(const Summary& summary) {
  Bins bins;
  for (const DataSummary::Bin& bin : describe(summary, "").lengths) {
    bins.push_back({bin.from, bin.to, bin.rows});
  }
  return bins;
}

TEST(Summary, FindsTheLengthThatAShareOfTheRowsDoesNotExceed) {
  const Summary summary = of_lengths({{1, 5}, {10, 4}, {700, 1}});
  EXPECT_EQ(summary.length_at(0.5), 1);
  EXPECT_EQ(summary.length_at(0.51), 10);
  EXPECT_EQ(summary.length_at(0.9), 10);
  EXPECT_EQ(summary.length_at(1), 700);
  EXPECT_EQ(Summary().length_at(0.5), 0);
}

TEST(Summary, SaysThatRowsDoNotGoThroughTheTemplate) {
  Summary summary;
  EXPECT_TRUE(summary.warnings().empty());
  summary.beside_template = 3;
  ASSERT_EQ(summary.warnings().size(), 1u);
  EXPECT_NE(summary.warnings()[0].find("--prompt-style chat"), std::string::npos);
}

TEST(Summary, CountsLengthsInPowersOfTwo) {
  EXPECT_EQ(bins_of(of_lengths({{3, 1}, {4, 2}, {5, 3}, {16, 4}, {17, 5}})),
            (Bins{{3, 4, 3}, {5, 8, 3}, {9, 16, 4}, {17, 17, 5}}));
  EXPECT_EQ(bins_of(of_lengths({{1, 1}, {2, 1}})), (Bins{{1, 1, 1}, {2, 2, 1}}));
  EXPECT_TRUE(bins_of(Summary()).empty());
}

TEST(Summary, JoinsTheShortestRowsWhereThereAreManyBins) {
  const Bins bins = bins_of(of_lengths({{1, 1}, {2, 1}, {3, 1}, {1000, 2}}));
  EXPECT_EQ(bins.size(), 8u);
  EXPECT_EQ(bins.front(), (std::array<int64_t, 3>{1, 8, 3}));
  EXPECT_EQ(bins.back(), (std::array<int64_t, 3>{513, 1000, 2}));
}

TEST(Summary, TellsLengthsBeforeTheCutAndWhatWasLeftOut) {
  const text::TextAssets assets = without_template();
  const std::string content =
      "{\"text\": \"a b c d e f g h\"}\n{\"text\": \"a\"}\n"
      "{\"prompt\": \"a b c d e f g h\", \"completion\": \"i\"}\nbroken\n";
  const Outcome outcome = encode_file(content, assets, {.max_seq_len = 4, .skip_bad_rows = true});
  const DataSummary summary = describe(outcome.summary, "train");
  const int64_t whole = encode_one({{"text", "a b c d e f g h"}}, assets).tokens();
  EXPECT_EQ(summary.rows, 2);
  EXPECT_EQ(summary.cut, 2);
  EXPECT_EQ(summary.cut_to, 4);
  EXPECT_EQ(summary.skipped, 1);
  EXPECT_EQ(summary.bad, 1);
  EXPECT_EQ(summary.tokens, 4 + encode_one({{"text", "a"}}, assets).tokens());
  EXPECT_EQ(summary.median_length, whole);
  EXPECT_GE(summary.longest, whole);
}

}  // namespace
}  // namespace wgrad::data
