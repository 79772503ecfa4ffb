#include "io/input_stream.h"

#include <zlib.h>

#include <nlohmann/json.hpp>
#include <string>

#include "io/json_lines.h"
#include "testing.h"

namespace wgrad::io {
namespace {

std::string packed(std::string_view content) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, static_cast<uLong>(content.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string unpacked(std::string_view content, std::size_t piece = 100000) {
  const TemporaryFolder folder;
  InputStream input = InputStream::open(folder.file("d", content));
  std::string out, buffer(piece, '\0');
  while (const std::size_t n = input.read_some(buffer)) out.append(buffer, 0, n);
  EXPECT_EQ(input.read_some(buffer), 0u) << "the end stays the end";
  return out;
}

std::string long_text() {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += std::to_string(i * 7919 % 10007) + "\n";
  return text;
}

TEST(InputStream, ReadsPlainFilesAsTheyAre) {
  for (const std::string& text : {std::string(), std::string("\x1f"), std::string("a"),
                                  std::string("\x1f\x8c"), long_text()}) {
    EXPECT_EQ(unpacked(text), text);
  }
}

TEST(InputStream, UnpacksGzipWhateverTheFileIsCalled) {
  const std::string text = long_text();
  for (const std::size_t piece : {std::size_t{1}, std::size_t{4097}, text.size() * 2}) {
    EXPECT_EQ(unpacked(packed(text.substr(0, 40000)), piece), text.substr(0, 40000));
  }
  EXPECT_EQ(unpacked(packed(text)), text);
  EXPECT_EQ(unpacked(packed("")), "");
}

TEST(InputStream, UnpacksSeveralMembersOneAfterTheOther) {
  EXPECT_EQ(unpacked(packed("one") + packed("") + packed("two\n")), "onetwo\n");
}

TEST(InputStream, RefusesDamagedGzip) {
  const std::string whole = packed(long_text());
  for (const std::size_t size :
       {std::size_t{2}, std::size_t{9}, whole.size() / 2, whole.size() - 1}) {
    expect_input_error({"d: its gzip data ends too early", "gzip -t"},
                       [&] { unpacked(std::string_view(whole).substr(0, size)); });
  }
  std::string wrong_sum = whole;
  wrong_sum[whole.size() - 6] ^= 1;
  expect_input_error({"its gzip data is damaged"}, [&] { unpacked(wrong_sum); });
  expect_input_error({"its gzip data is damaged"}, [&] { unpacked(whole + "more"); });
  for (std::size_t i = 2; i < 300; ++i) {
    std::string broken = whole;
    broken[i * 31 % whole.size()] ^= static_cast<char>(i);
    try {
      unpacked(broken);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
    }
  }
}

TEST(PackedLines, AreRowsLikeOthers) {
  const TemporaryFolder folder;
  JsonLines lines = JsonLines::open(folder.file("d.jsonl.gz", packed("1\n\n2\n{\n")));
  nlohmann::ordered_json row;
  ASSERT_TRUE(lines.next(row));
  ASSERT_TRUE(lines.next(row));
  EXPECT_EQ(lines.line(), 3u);
  expect_input_error({"d.jsonl.gz:4:"}, [&] { lines.next(row); });
  JsonLines array = JsonLines::open(folder.file("d.json.gz", packed("[1,\n2]")));
  ASSERT_TRUE(array.next(row));
  ASSERT_TRUE(array.next(row));
  EXPECT_EQ(row, 2);
  EXPECT_FALSE(array.next(row));
}

TEST(PackedLines, ABombIsARowThatIsTooLong) {
  const TemporaryFolder folder;
  const std::string bomb = packed("\"" + std::string(50'000'000, 'x'));
  ASSERT_LT(bomb.size(), 100'000u);
  JsonLines lines = JsonLines::open(folder.file("d.jsonl", bomb + packed("\"\n1\n")), 1 << 20);
  nlohmann::ordered_json row;
  expect_input_error({"d.jsonl:1", "longer than 1048576 bytes"}, [&] { lines.next(row); });
  ASSERT_TRUE(lines.next(row));
  EXPECT_EQ(row, 1);
}

}  // namespace
}  // namespace wgrad::io
