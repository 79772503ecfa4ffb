#include "data/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "data_test_support.h"

namespace wgrad::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string text_row(std::string_view text) { return Json{{"text", text}}.dump() + "\n"; }

void write_packed(const std::string& path, const std::string& content) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(gzwrite(file, content.data(), static_cast<unsigned>(content.size())),
            static_cast<int>(content.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

TEST(DataFiles, AFolderHasATrainingAndAValidationFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  EXPECT_THAT(input_error_of([&] { find_data_files(path); }), HasSubstr("train.jsonl"));
  const std::string train = folder.write("train.json", "[]");
  EXPECT_THAT(find_data_files(path).train, ElementsAre(train));
  EXPECT_THAT(find_data_files(path).valid, IsEmpty());
  const std::string lines = folder.write("train.jsonl", "");
  const std::string valid = folder.write("valid.jsonl.gz", "");
  folder.write("more.jsonl", "");
  EXPECT_THAT(find_data_files(path).train, ElementsAre(lines));
  EXPECT_THAT(find_data_files(path).valid, ElementsAre(valid));
  EXPECT_THAT(find_data_files("-").train, ElementsAre("-"));
  EXPECT_THAT(find_data_files(lines).train, ElementsAre(lines));
}

TEST(DataFiles, AFolderWithoutTrainHasItsLinesInTheOrderOfTheirNames) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  for (const char* other : {"notes.txt", "test.jsonl", "part-3.json", ".hidden.jsonl"}) {
    folder.write(other, "");
  }
  EXPECT_THAT(input_error_of([&] { find_data_files(path); }), HasSubstr("no other .jsonl file"));
  const std::string valid = folder.write("valid.jsonl", "");
  const std::string second = folder.write("part-2.jsonl.gz", "");
  const std::string first = folder.write("part-1.jsonl", "");
  const std::string tenth = folder.write("part-10.jsonl", "");
  EXPECT_THAT(find_data_files(path).train, ElementsAre(first, tenth, second));
  EXPECT_THAT(find_data_files(path).valid, ElementsAre(valid));
}

TEST(DataFiles, SeveralAreNamedWithCommas) {
  const TemporaryFolder folder, other;
  const std::string a = folder.write("a.jsonl", ""), b = folder.write("b,c.jsonl", "");
  const std::string train = other.write("train.jsonl", ""), valid = other.write("valid.jsonl", "");
  const DataFiles files = find_data_files(a + " ,, -," + other.path().string());
  EXPECT_THAT(files.train, ElementsAre(a, "-", train));
  EXPECT_THAT(files.valid, ElementsAre(valid));
  EXPECT_THAT(find_data_files(b).train, ElementsAre(b)) << "a name that exists is not cut";
  EXPECT_THAT(input_error_of([&] { find_data_files(a + ",nowhere.jsonl"); }),
              AllOf(HasSubstr("nowhere.jsonl: there is no such file"), HasSubstr("2 files")));
  EXPECT_THAT(input_error_of([] { find_data_files("-,-"); }), HasSubstr("twice"));
  EXPECT_THAT(input_error_of([] { find_data_files(" , "); }), HasSubstr("names no file"));
}

TEST(DataFiles, AnEvaluationTakesTheValidationFileFirst) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  EXPECT_THAT(input_error_of([&] { find_eval_files(path); }), HasSubstr("valid.jsonl"));
  const std::string train = folder.write("train.jsonl", "");
  EXPECT_THAT(find_eval_files(path), ElementsAre(train));
  const std::string valid = folder.write("valid.jsonl", "");
  EXPECT_THAT(find_eval_files(path), ElementsAre(valid));
  fs::remove(train);
  EXPECT_THAT(find_eval_files(path), ElementsAre(valid));
  const std::string other = folder.write("other.jsonl", "");
  EXPECT_THAT(find_eval_files(other + "," + path), ElementsAre(other, valid));
}

TEST(SeveralFiles, AreReadAsOneAndErrorsNameTheirFile) {
  const text::TextAssets assets = without_template();
  const TemporaryFolder folder;
  const std::string a = folder.write("a.jsonl", text_row("one") + "\n" + text_row("two"));
  const std::string b = folder.write("b.json", R"([{"text": "three"}])");
  const std::string c = (folder.path() / "c.jsonl.gz").string();
  write_packed(c, text_row("four") + "{broken\n" + text_row("five"));
  const std::string empty = folder.write("e.jsonl", "\n");
  std::vector<std::string> places, texts;
  const auto take = [&](Row&& row) {
    places.push_back(fs::path(row.where).filename().string());
    texts.push_back(assets.tokenizer.decode(row.ids, true));
  };
  for_each_row({a, empty, b, c}, assets, {.skip_bad_rows = true}, take);
  EXPECT_THAT(texts, ElementsAre("one", "two", "three", "four", "five"));
  EXPECT_THAT(places, ElementsAre("a.jsonl:1", "a.jsonl:3", "b.json, item 1", "c.jsonl.gz:1",
                                  "c.jsonl.gz:3"));
  EXPECT_THAT(input_error_of([&] {
                for_each_row({a, c}, assets, {}, take);
              }),
              HasSubstr("c.jsonl.gz:2:"));
  EXPECT_THAT(input_error_of([&] {
                for_each_row({empty, empty}, assets, {}, take);
              }),
              HasSubstr("e.jsonl and 1 more: holds no rows"));
}

TEST(SeveralFiles, HaveTheFingerprintOfTheirRowsTogether) {
  const text::TextAssets assets = without_template();
  const TemporaryFolder folder;
  const std::string a = folder.write("a.jsonl", text_row("one"));
  const std::string b = folder.write("b.jsonl", text_row("two"));
  const std::string both = folder.write("both.jsonl", text_row("one") + text_row("two"));
  const auto fingerprint = [&](const Files& files) {
    return load_dataset(files, assets, {}).fingerprint;
  };
  EXPECT_EQ(fingerprint({a, b}), fingerprint({both}));
  EXPECT_NE(fingerprint({b, a}), fingerprint({both}));
}

}  // namespace
}  // namespace wgrad::data
