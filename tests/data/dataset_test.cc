#include "data/dataset.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data_test_support.h"

namespace wgrad::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::string text_row(std::string_view text) { return Json{{"text", text}}.dump() + "\n"; }

/// More rows than a chunk holds, of uneven length.
std::string many_rows(int count) {
  std::string content;
  for (int i = 0; i < count; ++i) {
    std::string text = "row " + std::to_string(i);
    for (int k = 0; k < i * 7 % 40; ++k) text += " quick fox";
    content += text_row(text);
  }
  return content;
}

TEST(Dataset, DeliversRowsInTheFilesOrderWithTheirLines) {
  const text::TextAssets assets = without_template();
  constexpr int kRows = 3000;
  const Outcome outcome = encode_file("\n" + many_rows(kRows), assets);
  ASSERT_EQ(outcome.rows.size(), size_t{kRows});
  int64_t tokens = 0, longest = 0;
  for (int i = 0; i < kRows; ++i) {
    const Row& row = outcome.rows[static_cast<size_t>(i)];
    ASSERT_EQ(row.number, i + 1);
    ASSERT_THAT(row.where, EndsWith(":" + std::to_string(i + 2)));
    ASSERT_EQ(row.counted.size(), row.ids.size());
    ASSERT_THAT(assets.tokenizer.decode(row.ids, true), StartsWith("row " + std::to_string(i)));
    tokens += row.tokens();
    longest = std::max(longest, row.tokens());
  }
  EXPECT_EQ(outcome.summary.rows, kRows);
  EXPECT_EQ(outcome.summary.tokens, tokens);
  EXPECT_EQ(outcome.summary.counted_tokens, tokens - kRows);
  EXPECT_EQ(outcome.summary.longest, longest);
  EXPECT_THAT(outcome.summary.warnings(), IsEmpty());
}

TEST(Dataset, ReportsTheFirstBadRowOfTheFile) {
  const text::TextAssets assets = without_template();
  // Whether a row is bad as JSON is known before the rows in front of it are encoded.
  const std::string late = many_rows(900) + "{broken\n";
  EXPECT_THAT(input_error_of([&] { encode_file(late, assets); }), HasSubstr("d.jsonl:901:"));
  const std::string early = many_rows(5) + "{\"text\": 1}\n" + many_rows(3) + "{broken\n";
  EXPECT_THAT(input_error_of([&] { encode_file(early, assets); }), HasSubstr("d.jsonl:6: "));
  const std::string both = many_rows(5) + "{broken\n{\"text\": 1}\n";
  EXPECT_THAT(input_error_of([&] { encode_file(both, assets); }),
              AllOf(HasSubstr("2 bad rows: (1) "), HasSubstr("d.jsonl:6:"), HasSubstr("(2) "),
                    HasSubstr("d.jsonl:7: ")));
}

TEST(Dataset, HandsOnTheRowsBeforeABadOne) {
  const text::TextAssets assets = without_template();
  const TemporaryFolder folder;
  const std::string path = folder.write("d.jsonl", many_rows(700) + "{}\n" + many_rows(10));
  std::vector<int64_t> numbers;
  EXPECT_THROW(for_each_row({path}, assets, {}, [&](Row&& row) { numbers.push_back(row.number); }),
               Error);
  EXPECT_EQ(numbers.size(), 700u);
}

TEST(Dataset, LetsTheTakersErrorsThrough) {
  const text::TextAssets assets = without_template();
  const TemporaryFolder folder;
  const std::string path = folder.write("d.jsonl", many_rows(10));
  EXPECT_THROW(for_each_row({path}, assets, {.skip_bad_rows = true},
                            [](Row&&) { throw std::runtime_error("full"); }),
               std::runtime_error);
}

TEST(Dataset, SkipsBadRowsOnDemandAndSaysHowMany) {
  const text::TextAssets assets = without_template();
  const std::string content = many_rows(3) + "{broken\n{}\n" + many_rows(2) + "{\"text\":\"\"}\n";
  const Outcome outcome = encode_file(content, assets, {.skip_bad_rows = true});
  EXPECT_EQ(outcome.rows.size(), 5u);
  EXPECT_EQ(outcome.summary.bad, 3);
  EXPECT_THAT(outcome.summary.warnings(),
              ElementsAre(AllOf(HasSubstr("3 bad rows"), HasSubstr("d.jsonl:4:"))));
}

TEST(Dataset, ReadsNoMoreRowsThanTheLimit) {
  const text::TextAssets assets = without_template();
  const std::string content = many_rows(3) + "{broken\n" + many_rows(2);
  EXPECT_EQ(encode_file(content, assets, {.limit = 3}).rows.size(), 3u) << "line 4 is not read";
  EXPECT_THROW(encode_file(content, assets, {.limit = 4}), Error);
  const Outcome skipped = encode_file(content, assets, {.skip_bad_rows = true, .limit = 4});
  EXPECT_EQ(skipped.rows.size(), 4u) << "bad rows do not use the limit up";
  EXPECT_EQ(skipped.summary.bad, 1);
  EXPECT_EQ(encode_file(many_rows(800), assets, {.limit = 700}).rows.size(), 700u);
}

TEST(Dataset, ReadsAnArrayInAJsonFile) {
  const text::TextAssets assets = without_template();
  EXPECT_EQ(encode_file(R"([{"text": "a"}, {"text": "b"}])", assets, {}, "d.json").rows.size(), 2u);
}

TEST(Dataset, CutsAtTheEndAndSkipsWhatIsLeftWithoutAnAnswer) {
  const text::TextAssets assets = chatml();
  const Json row = chat({user("one two three"), assistant("b")});
  const Row whole = encode_one(row, assets);
  const int64_t answer = static_cast<int64_t>(
      std::find(whole.counted.begin(), whole.counted.end(), 1) - whole.counted.begin());
  const std::string content = row.dump() + "\n" + text_row("a b");

  Outcome cut = encode_file(content, assets, {.max_seq_len = answer + 1});
  ASSERT_EQ(cut.rows.size(), 2u);
  EXPECT_EQ(cut.rows[0].ids, std::vector(whole.ids.begin(), whole.ids.begin() + answer + 1));
  EXPECT_EQ(cut.rows[0].counted_tokens(), 1);
  EXPECT_EQ(cut.summary.cut, 1);
  EXPECT_EQ(cut.summary.nothing_left, 0);

  cut = encode_file(content, assets, {.max_seq_len = answer});
  EXPECT_EQ(cut.rows.size(), 1u);
  EXPECT_EQ(cut.summary.nothing_left, 1);
  EXPECT_THAT(cut.summary.warnings(),
              ElementsAre(HasSubstr("1 of 2 rows cut"), HasSubstr("1 row skipped: nothing in it")));

  cut = encode_file(content, assets, {.max_seq_len = answer, .keep_uncounted = true});
  EXPECT_EQ(cut.rows.size(), 2u);
  EXPECT_EQ(cut.summary.rows, 1);
  EXPECT_THAT(cut.summary.warnings(),
              ElementsAre(HasSubstr("1 of 2 rows cut"), HasSubstr("1 row would be skipped: ")));
  EXPECT_EQ(encode_file(content, assets, {.max_seq_len = whole.tokens()}).summary.cut, 0);
}

TEST(Dataset, NamesTheModelsLimitWhereThatCutsRows) {
  const text::TextAssets assets = without_template();
  const std::string content = text_row("one two three four five six") + text_row("a b");
  const auto warning = [&](EncodeOptions options) {
    const std::vector<std::string> all = encode_file(content, assets, options).summary.warnings();
    return all.size() == 1 ? all[0] : std::string("not one warning");
  };
  for (const int64_t longest : {0, 4, 2048}) {
    EXPECT_THAT(warning({.max_seq_len = longest, .model_limit = 4}),
                AllOf(HasSubstr("1 of 2 rows cut to 4 tokens, the model's limit"),
                      Not(HasSubstr("--max-seq-len"))));
  }
  EXPECT_THAT(warning({.max_seq_len = 3, .model_limit = 4}), HasSubstr("raise --max-seq-len"));
  EXPECT_EQ(encode_file(content, assets, {.model_limit = 4}).rows[0].tokens(), 4);
}

TEST(Dataset, SkipsAndCountsRowsWithoutAnAnswer) {
  const text::TextAssets assets = chatml();
  const std::string question = chat({user("a")}).dump() + "\n";
  const Outcome outcome = encode_file(question + text_row("a b") + question, assets);
  EXPECT_EQ(outcome.rows.size(), 1u);
  EXPECT_EQ(outcome.summary.nothing_left, 2);
  EXPECT_EQ(outcome.summary.bad, 0);
}

TEST(Dataset, AFirstTokenThatCountsIsNothingToTrainOn) {
  Row row{.ids = {7}, .counted = {1}};
  EXPECT_EQ(row.counted_tokens(), 0);
  EXPECT_EQ(Row().counted_tokens(), 0);
}

class BadFiles : public testing::Test {
 protected:
  std::string error_of(std::string_view content, EncodeOptions options = {}) {
    const std::string path = folder_.write("d.jsonl", content);
    return input_error_of([&] { load_dataset({path}, assets_, options); });
  }

  const TemporaryFolder folder_;
  const text::TextAssets assets_ = chatml();
};

TEST_F(BadFiles, WithoutARowAreRefused) {
  EXPECT_THAT(error_of(""), AllOf(HasSubstr("d.jsonl"), HasSubstr("holds no rows")));
  EXPECT_THAT(error_of("\n\n  \n"), HasSubstr("holds no rows"));
}

TEST_F(BadFiles, WithNothingToTrainOnAreRefused) {
  const std::string question = chat({user("a")}).dump() + "\n";
  EXPECT_THAT(error_of(question + question),
              AllOf(HasSubstr("none of its 2 rows"), HasSubstr("wgrad data")));
  const std::string answered = chat({user("a b c d e"), assistant("f")}).dump() + "\n";
  EXPECT_THAT(error_of(answered, {.max_seq_len = 3}), HasSubstr("raise --max-seq-len"));
}

TEST_F(BadFiles, WithOnlyBadRowsAreRefused) {
  EXPECT_THAT(error_of("{}\n[\n", {.skip_bad_rows = true}),
              AllOf(HasSubstr("none of its rows can be used: 2 bad rows"), HasSubstr("d.jsonl:1")));
}

TEST_F(BadFiles, ThatAreMissingAreNamed) {
  const std::string path = (folder_.path() / "missing.jsonl").string();
  EXPECT_THAT(input_error_of([&] { load_dataset({path}, assets_, {}); }), HasSubstr(path));
}

TEST(Dataset, HasAFingerprintOfIdsAndLabels) {
  const text::TextAssets assets = chatml();
  const TemporaryFolder folder;
  const auto fingerprint = [&](std::string_view content, const EncodeOptions& options = {}) {
    return load_dataset({folder.write("d.jsonl", content)}, assets, options).fingerprint;
  };
  const std::string row = chat({user("a"), assistant("b")}).dump() + "\n";
  const uint64_t base = fingerprint(row + text_row("a b"));
  EXPECT_EQ(fingerprint("\n" + row + text_row("a b")), base);
  EXPECT_NE(fingerprint(text_row("a b") + row), base);
  EXPECT_NE(fingerprint(row + text_row("a c")), base);
  EXPECT_NE(fingerprint(row + text_row("a b"), {.train_on = TrainOn::kAll}), base);
}

TEST(PlainText, NeedsAnEndOfSequenceToken) {
  const text::TextAssets assets = load({.config = Json::object()});
  EXPECT_THAT(input_error_of([&] {
                encode_one({{"text", "a"}}, assets);
              }),
              AllOf(HasSubstr("d.jsonl:1"), HasSubstr("eos_token")));
}

}  // namespace
}  // namespace wgrad::data
