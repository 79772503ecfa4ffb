#include "io/json_lines.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "io/file_descriptor.h"
#include "io/json.h"
#include "testing.h"

namespace wgrad::io {
namespace {

using json = nlohmann::ordered_json;

std::vector<json> rows_of(const fs::path& path) {
  std::vector<json> rows;
  JsonLines lines = JsonLines::open(path);
  for (json row; lines.next(row);) rows.push_back(row);
  EXPECT_EQ(lines.rows(), rows.size());
  return rows;
}

std::vector<json> rows_in(std::string_view name, std::string_view content) {
  const TemporaryFolder folder;
  return rows_of(folder.file(name, content));
}

void expect_bad_row(std::initializer_list<std::string_view> parts, std::string_view content,
                    std::string_view name = "d.jsonl") {
  const TemporaryFolder folder;
  const auto path = folder.file(name, content);
  expect_input_error(parts, [&] { rows_of(path); });
}

TEST(JsonLines, ReadsARowALine) {
  EXPECT_EQ(rows_in("d.jsonl", "{\"a\":1}\n[2]\n\"ſ\"\n"),
            (std::vector<json>{{{"a", 1}}, json::array({2}), "ſ"}));
}

TEST(JsonLines, AcceptsMarksCarriageReturnsBlankLinesAndAnOpenEnd) {
  EXPECT_EQ(rows_in("d.jsonl", "\xef\xbb\xbf{\"a\":1}\r\n\r\n  \t\n2\r\n\n3"),
            (std::vector<json>{{{"a", 1}}, 2, 3}));
  EXPECT_TRUE(rows_in("d.jsonl", "").empty());
  EXPECT_TRUE(rows_in("d.jsonl", "\xef\xbb\xbf\n").empty());
}

TEST(JsonLines, TellsTheLineOfARow) {
  const TemporaryFolder folder;
  JsonLines lines = JsonLines::open(folder.file("d.jsonl", "\n1\n\n2\n"));
  json row;
  ASSERT_TRUE(lines.next(row));
  EXPECT_EQ(lines.line(), 2u);
  ASSERT_TRUE(lines.next(row));
  EXPECT_EQ(lines.line(), 4u);
  EXPECT_EQ(lines.where(), (folder / "d.jsonl").string() + ":4");
  EXPECT_FALSE(lines.next(row));
}

TEST(JsonLines, ReadsRowsLongerThanItsBuffer) {
  std::string content;
  std::vector<json> expected;
  for (const std::size_t size : {std::size_t{10}, std::size_t{1} << 18, std::size_t{1000000}}) {
    expected.push_back(std::string(size, 'x'));
    content += expected.back().dump() + "\n";
  }
  EXPECT_EQ(rows_in("d.jsonl", content), expected);
  EXPECT_EQ(rows_in("d.json", "[" + expected[1].dump() + "," + expected[2].dump() + "]"),
            (std::vector<json>{expected[1], expected[2]}));
}

TEST(JsonLines, PointsAtABrokenRow) {
  expect_bad_row({"d.jsonl:2:6: not valid JSON", "correct the JSON there"}, "1\n{\"a\":}\n");
  expect_bad_row({"d.jsonl:1:", "unexpected end of input"}, "{\"a\":1\n}");
  expect_bad_row({"d.jsonl:3:4: byte 0xff is not valid UTF-8", "save the file as UTF-8"},
                 "1\n2\n{\"a\xff\":1}\n");
  expect_bad_row({"d.jsonl:1:1: byte 0xff is not valid UTF-8"}, "\xff\xfe{\0");
  expect_bad_row({"d.jsonl:1:2: byte 0xed is not valid UTF-8"}, "\"\xed\xa0\x80\"");
  expect_bad_row({"d.jsonl:1:", "number overflow"}, "1e999");
  expect_bad_row({"d.jsonl:1:", "not valid JSON"}, "NaN");
}

TEST(JsonLines, ShortensALongQuotationOfABadRow) {
  const TemporaryFolder folder;
  const auto path = folder.file("d.jsonl", "\"" + std::string(100000, 'x'));
  try {
    rows_of(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_LT(std::strlen(error.what()), 400u + path.string().size());
  }
}

TEST(JsonLines, RefusesDeepNesting) {
  expect_bad_row({"d.jsonl:1:257: JSON nested deeper than 256 levels"}, std::string(1000000, '['));
  EXPECT_EQ(rows_in("d.jsonl", std::string(256, '[') + std::string(256, ']')).size(), 1u);
  expect_bad_row({"d.json:1:258: JSON nested deeper"},
                 "[" + std::string(10000, '[') + std::string(10000, ']') + "]", "d.json");
}

TEST(JsonLines, RefusesARowOverTheLimitAndGoesOn) {
  const TemporaryFolder folder;
  const std::string content = "1\n\"" + std::string(600000, 'x') + "\"\n3\n";
  JsonLines lines = JsonLines::open(folder.file("d.jsonl", content), 1000);
  json row;
  ASSERT_TRUE(lines.next(row));
  expect_input_error({"d.jsonl:2: the row is longer than 1000 bytes"}, [&] { lines.next(row); });
  ASSERT_TRUE(lines.next(row));
  EXPECT_EQ(row, 3);
  EXPECT_EQ(lines.line(), 3u);
}

TEST(JsonLines, GoesOnAfterAnElementOverTheLimit) {
  const TemporaryFolder folder;
  // Larger than the buffer, so that a backslash and its quote may be torn apart.
  std::string longest = "{\"a\":\"";
  for (int i = 0; i < 300001; ++i) longest += "\\\"";
  const auto path = folder.file("d.json", "[1,\n" + longest + "]}\"},\n3]");
  JsonLines lines = JsonLines::open(path, 1000);
  json row;
  ASSERT_TRUE(lines.next(row));
  expect_input_error({"d.json:2: the row is longer than 1000 bytes"}, [&] { lines.next(row); });
  ASSERT_TRUE(lines.next(row));
  EXPECT_EQ(row, 3);
  EXPECT_EQ(lines.line(), 3u);
  EXPECT_FALSE(lines.next(row));
}

TEST(JsonLines, StopsAtTheLimitOfARowThatHasNoEnd) {
  const TemporaryFolder folder;
  const auto path = folder / "d.json";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto old_action = ::signal(SIGPIPE, SIG_IGN);
  std::thread writer([&path] {
    const FileDescriptor file = FileDescriptor(::open(path.c_str(), O_WRONLY), path);
    const std::string part(4096, '[');
    while (::write(file.get(), part.data(), part.size()) > 0) {
    }
  });
  {
    JsonLines lines = JsonLines::open(path, 100000);
    json row;
    expect_input_error({"d.json:1: the row is longer"}, [&] { lines.next(row); });
  }
  writer.join();
  ::signal(SIGPIPE, old_action);
}

TEST(JsonLines, GoesOnAfterABadRow) {
  const TemporaryFolder folder;
  for (const auto& [name, content] :
       {std::pair("d.jsonl", "1\n{bad\n3"), std::pair("d.json", "[1,\n{\"bad\"},\n3]")}) {
    JsonLines lines = JsonLines::open(folder.file(name, content));
    json row;
    ASSERT_TRUE(lines.next(row));
    expect_input_error({":2:"}, [&] { lines.next(row); });
    ASSERT_TRUE(lines.next(row));
    EXPECT_EQ(row, 3);
    EXPECT_FALSE(lines.next(row));
    EXPECT_EQ(lines.rows(), 2u);
  }
}

TEST(JsonLines, ReadsAnArrayOfRows) {
  EXPECT_EQ(rows_in("d.json", " [ {\"a\":\"]},{\\\"\"} ,\n[1,[2]], 3 , \"x\",true]\n"),
            (std::vector<json>{{{"a", "]},{\""}}, {1, json::array({2})}, 3, "x", true}));
  EXPECT_TRUE(rows_in("d.json", "[]").empty());
  EXPECT_TRUE(rows_in("d.json", "[ \n]").empty());
}

TEST(JsonLines, ReadsLinesFromAJsonFileThatIsNoArray) {
  EXPECT_EQ(rows_in("d.json", "{\"a\":1}\n{\"a\":2}\n").size(), 2u);
}

TEST(JsonLines, TellsLineAndColumnWithinAnArray) {
  expect_bad_row({"d.json:3:8: not valid JSON"}, "[1,\n2,\n  {\"a\":}]", "d.json");
  expect_bad_row({"d.json:1:5: no comma after a row"}, "[{} {}]", "d.json");
  expect_bad_row({"d.json:1:4: a comma before the closing bracket"}, "[1,]", "d.json");
  expect_bad_row({"d.json:1:", "the file ends within the array"}, "[{}", "d.json");
  expect_bad_row({"d.json:2:1: the file ends within a row"}, "[{\n", "d.json");
  expect_bad_row({"d.json:1:4: text after the array"}, "[1]2", "d.json");
  expect_bad_row({"d.json:1:2: not valid JSON"}, "[}]", "d.json");
}

TEST(JsonLines, KeepsTheOrderOfKeys) {
  const auto rows = rows_in("d.jsonl", R"({"z":1,"a":{"y":2,"b":3}})");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].dump(), R"({"z":1,"a":{"y":2,"b":3}})");
}

TEST(JsonLines, RefusesAnObjectOfVeryManyKeys) {
  std::string row = "{\"\":0";
  for (int i = 1; i < 5000; ++i) row += ",\"" + std::to_string(i) + "\":0";
  expect_bad_row({"d.jsonl:2:", "more than 4096 keys in one object"}, "1\n" + row + "}");
}

TEST(JsonLines, ReadsStandardInput) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const int saved = ::dup(STDIN_FILENO);
  ASSERT_EQ(::dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
  ::close(ends[0]);
  // Single bytes, so that marks and rows arrive in pieces.
  std::thread writer([fd = ends[1]] {
    for (const char c : std::string("\xef\xbb\xbf{\"a\":1}\n2\n{")) {
      EXPECT_EQ(::write(fd, &c, 1), 1);
    }
    ::close(fd);
  });
  JsonLines lines = JsonLines::open("-");
  json row;
  EXPECT_TRUE(lines.next(row));
  EXPECT_EQ(row, (json{{"a", 1}}));
  EXPECT_TRUE(lines.next(row));
  expect_input_error({"standard input:3:"}, [&] { lines.next(row); });
  EXPECT_FALSE(lines.next(row));
  writer.join();
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
}

TEST(JsonLines, NamesAMissingFileAndAFolder) {
  const TemporaryFolder folder;
  expect_input_error({"/no/such.jsonl: cannot open", "No such file"},
                     [] { JsonLines::open("/no/such.jsonl"); });
  expect_input_error({"Is a directory"}, [&] { JsonLines::open(folder.path()); });
}

TEST(JsonFile, ReadsAndPointsAtErrors) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_json_file(folder.file("c", "\xef\xbb\xbf{\"a\":[1]}")).dump(), "{\"a\":[1]}");
  expect_input_error({"c:3:1: not valid JSON"},
                     [&] { read_json_file(folder.file("c", "{\n\"a\":1\n")); });
  expect_input_error({"c:1:1: not valid JSON"}, [&] { read_json_file(folder.file("c", "")); });
  expect_input_error({"c", "larger than 3 bytes"},
                     [&] { read_text_file(folder.file("c", "1234"), 3); });
}

TEST(Utf8, IsCheckedByTheStandardsTable) {
  for (const std::string_view good :
       {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(find_invalid_utf8(good), std::string_view::npos);
  }
  for (const std::string_view bad :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x9f\xbf", "\xe1\x80",
        "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf1\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
        "\xff"}) {
    EXPECT_EQ(find_invalid_utf8("ok" + std::string(bad) + "ok"), 2u) << bad;
  }
}

}  // namespace
}  // namespace wgrad::io
